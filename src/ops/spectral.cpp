#include "ops/spectral.hpp"

#include <cmath>
#include <numbers>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "ops/constants.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::Gradients;
using autograd::Needs;

namespace {

void check_stft(const Tensor& x, const StftOptions& options) {
  require<ShapeError>(x.rank() >= 1, "power_spectrogram: expected x (..., L), got ", x.shape());
  require<ShapeError>(options.n_fft >= 2 && options.n_fft % 2 == 0, "power_spectrogram: expected an even n_fft >= 2, got ",
                      options.n_fft);
  require<ShapeError>(options.hop_length >= 1, "power_spectrogram: expected hop_length >= 1, got ", options.hop_length);
  require<ShapeError>(options.win_length >= 1 && options.win_length <= options.n_fft,
                      "power_spectrogram: expected win_length in [1, n_fft=", options.n_fft, "], got ", options.win_length);
  const std::int64_t least = options.center ? options.n_fft / 2 + 1 : options.n_fft;
  require<ShapeError>(x.size(-1) >= least, "power_spectrogram: expected x (..., L >= ", least, ") for n_fft=", options.n_fft,
                      ", got ", x.shape());
}

}  // namespace

Tensor hann_window(std::int64_t length, const TensorOptions& options) {
  require<ShapeError>(length >= 0, "hann_window: expected length >= 0, got ", length);
  const Tensor wide = ops::host_table<double>(length, [length](std::int64_t i) {
    return length == 1 ? 1.0
                       : 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length));
  });
  Tensor window = wide.to(options.dtype).to(options.device);
  if (options.requires_grad) window.set_requires_grad(true);
  return window;
}

Tensor rfft(const Tensor& x) {
  if (autograd::raises(x)) return rfft(autograd::raised(x));
  require<DTypeError>(x.dtype() == DType::f32 || x.dtype() == DType::f64, "rfft: expected f32 or f64, got ", x.dtype());
  require<ShapeError>(x.rank() >= 1 && x.size(-1) >= 2 && x.size(-1) % 2 == 0, "rfft: expected x (..., n) with n even, got ",
                      x.shape());
  const std::int64_t n = x.size(-1);
  const std::int64_t bins = n / 2 + 1;
  Shape shape = x.shape();
  shape[x.rank() - 1] = 1;
  const std::int64_t rows = shape.numel();
  shape[x.rank() - 1] = bins;
  shape.push_back(2);
  const Tensor out = Tensor::empty(shape, {x.dtype(), x.device()});
  if (rows > 0)
    backend_of(x.device())
        .rfft(ops::reshaped_view(out, {rows, bins, 2}), ops::reshaped_view(x.detach().contiguous(), {rows, n}));
  return autograd::record("rfft", out, {x}, [rows, n, bins, x_shape = x.shape()](const Tensor& g, Needs) {
    const Tensor gradient = Tensor::empty(x_shape, {g.dtype(), g.device()});
    if (rows > 0)
      backend_of(g.device())
          .rfft_adjoint(ops::reshaped_view(gradient, {rows, n}), ops::reshaped_view(g.contiguous(), {rows, bins, 2}));
    return Gradients{gradient};
  });
}

Tensor power_spectrogram(const Tensor& x, const StftOptions& options) {
  if (autograd::raises(x)) return power_spectrogram(autograd::raised(x), options);
  check_stft(x, options);
  const std::int64_t half = options.n_fft / 2;
  const std::int64_t margin = options.n_fft - options.win_length;
  const Tensor window = ops::constant("power_spectrogram", {options.win_length, margin, 0}, x.dtype(), x.device(), [&] {
    return pad1d(hann_window(options.win_length, {x.dtype(), Device::cpu()}),
                 {margin / 2, margin - margin / 2});  // centred as in PyTorch
  });
  const Tensor padded = options.center ? pad1d(x, half, PaddingMode::reflect) : x;
  const Tensor spectrum = rfft(padded.unfold(options.n_fft, options.hop_length) * window);
  return sum(square(spectrum), {-1});
}

}  // namespace polyphase
