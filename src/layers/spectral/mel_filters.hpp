#pragma once
// Filters of the mel scale.

#include "../../tensor/tensor.hpp"

namespace polyphase {

enum class MelScale : std::uint8_t {
  slaney,  ///< linear below 1000 Hz, 3 mel for 200 Hz; logarithmic above, 27 mel for a factor of 6.4 (librosa's default)
  htk,     ///< 2595 log10(1 + f/700) (torchaudio's default)
};

struct MelOptions {
  std::int64_t sample_rate = 22050;  ///< Hz
  std::int64_t n_fft = 1024;
  std::int64_t n_mels = 80;
  double f_min = 0;  ///< Hz, where the first filter begins
  double f_max = 0;  ///< Hz, where the last one ends; 0: half the sample rate
  MelScale scale = MelScale::slaney;
  bool is_normalized = true;  ///< each filter by 2 over its width in Hz, so that its area is 1; else its peak is 1
};
/// Triangles whose corners are equally far apart in mel: (n_mels, n_fft/2 + 1), f32 on the CPU. With slaney the numbers are
/// those of librosa.filters.mel bit for bit: computed in f64, rounded to f32 before the norm and after it. With htk they are
/// computed in f32 throughout, as torchaudio.functional.melscale_fbanks does it. Throws ShapeError unless n_fft is even,
/// n_mels >= 1 and 0 <= f_min < f_max.
[[nodiscard]] Tensor mel_filters(const MelOptions& options);

}  // namespace polyphase
