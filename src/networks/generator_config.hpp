#pragma once
// What the configurations of HiFi-GAN's and BigVGAN's generators share.

#include <cstdint>
#include <vector>

namespace polyphase {

/// The part of the original's configuration that both have, by its keys.
struct GeneratorConfig {
  bool two_convolutions = true;  ///< in a residual: resblock "1"; else "2"
  std::vector<std::int64_t> upsample_rates{};
  std::vector<std::int64_t> upsample_kernel_sizes{};  ///< one for each rate
  std::int64_t upsample_initial_channel = 0;
  std::vector<std::int64_t> resblock_kernel_sizes{};
  std::vector<std::vector<std::int64_t>> resblock_dilation_sizes{};  ///< one list for each kernel size
  std::int64_t num_mels = 80;
  std::int64_t sampling_rate = 0;
  bool final_bias = true;  ///< of the last convolution
};

}  // namespace polyphase
