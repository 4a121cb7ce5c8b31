#include "layers/spectral/mel_spectrogram.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "autograd/autocast.hpp"
#include "layers/check.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/reduce.hpp"
#include "ops/spectral.hpp"

namespace polyphase {

MelSpectrogram::MelSpectrogram(const Options& options) : options_(options) {
  static constexpr const char* kName = "MelSpectrogram";
  layers::require_floating(kName, options.dtype);
  mel_basis_ = mel_filters(options.mel).to(options.dtype).to(options.device);
  if (options_.win_length == 0) options_.win_length = options.mel.n_fft;
  for (const auto& [what, value] : {std::pair{"hop_length", options_.hop_length}, std::pair{"win_length", options_.win_length}})
    require<ShapeError>(value >= 1 && value <= options.mel.n_fft, kName, ": expected ", what,
                        " in [1, n_fft=", options.mel.n_fft, "], got ", value);
  require<ShapeError>(options.clip > 0 && options.power_floor >= 0, kName, ": expected clip > 0 and power_floor >= 0, got ",
                      options.clip, " and ", options.power_floor);
}

Tensor MelSpectrogram::forward(const Tensor& x) {
  const auto& [mel, hop, win, padding, power_floor, clip, unused_dtype, unused_device] = options_;
  const std::int64_t reflected = padding == Padding::center ? mel.n_fft / 2 : (mel.n_fft - hop) / 2;
  require<ShapeError>(x.rank() >= 1 && x.size(-1) > reflected && x.size(-1) + 2 * reflected >= mel.n_fft,
                      "MelSpectrogram: expected x (..., L >= ", std::max(reflected + 1, mel.n_fft - 2 * reflected), "), got ",
                      x.shape());
  const AutocastGuard exact(std::nullopt);
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor padded = pad1d(x.to(dtype), reflected, PaddingMode::reflect);
  const Tensor spectrum =
      stft(padded, {.n_fft = mel.n_fft, .hop_length = hop, .win_length = win, .center = false});  // (..., frames, bins, 2)
  // norm() has the gradient 0 at 0, where that of the root is none.
  const Tensor magnitude = power_floor > 0 ? sqrt(sum(square(spectrum), {-1}) + power_floor) : norm(spectrum, {-1});
  const Tensor bands = linear(magnitude, mel_basis_.to(dtype));
  return log(clamp(bands, clip, std::numeric_limits<double>::infinity())).transpose(-1, -2).contiguous().to(x.dtype());
}

}  // namespace polyphase
