#pragma once
// A vocoder small enough for a test.

#include <fstream>
#include <string>

namespace vocoder::testing {

inline std::string small_config(const std::string& more = "") {
  return R"({"resblock": "2", "batch_size": 2, "segment_size": 2048, "upsample_rates": [8, 8], "upsample_kernel_sizes": [16, 16],
    "upsample_initial_channel": 8, "resblock_kernel_sizes": [3], "resblock_dilation_sizes": [[1, 2]], "num_mels": 8,
    "n_fft": 256, "hop_size": 64, "win_size": 256, "sampling_rate": 8000, "fmin": 0, "fmax": 4000, "fmax_for_loss": null,
    "learning_rate": 0.001, "adam_b1": 0.8, "adam_b2": 0.99, "lr_decay": 0.5, "seed": 7,
    "discriminator_channel_mult": 0.125)" +
         more + "}";
}

inline void write_file(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace vocoder::testing
