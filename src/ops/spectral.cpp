#include "ops/spectral.hpp"

#include <algorithm>
#include <array>
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

constexpr const char* kIstft = "istft";
constexpr double kSmallestEnvelope = 1e-11;  // as in PyTorch

void check_frames(const char* name, std::int64_t n_fft, std::int64_t hop_length, std::int64_t win_length) {
  require<ShapeError>(n_fft >= 2 && n_fft % 2 == 0, name, ": expected an even n_fft >= 2, got ", n_fft);
  require<ShapeError>(hop_length >= 1, name, ": expected hop_length >= 1, got ", hop_length);
  require<ShapeError>(win_length >= 1 && win_length <= n_fft, name, ": expected win_length in [1, n_fft=", n_fft, "], got ",
                      win_length);
}

void check_stft(const char* name, const Tensor& x, const StftOptions& options) {
  require<ShapeError>(x.rank() >= 1, name, ": expected x (..., L), got ", x.shape());
  check_frames(name, options.n_fft, options.hop_length, options.win_length);
  const std::int64_t least = options.center ? options.n_fft / 2 + 1 : options.n_fft;
  require<ShapeError>(x.size(-1) >= least, name, ": expected x (..., L >= ", least, ") for n_fft=", options.n_fft, ", got ",
                      x.shape());
}

void check_istft(const Tensor& spectrum, const IstftOptions& options) {
  check_frames(kIstft, options.n_fft, options.hop_length, options.win_length);
  require<ShapeError>(options.hop_length <= options.n_fft, kIstft, ": expected hop_length <= n_fft=", options.n_fft, ", got ",
                      options.hop_length);
  const std::int64_t bins = options.n_fft / 2 + 1;
  require<ShapeError>(spectrum.rank() >= 3 && spectrum.size(-1) == 2 && spectrum.size(-2) == bins && spectrum.size(-3) >= 1,
                      kIstft, ": expected a spectrum (..., frames >= 1, ", bins, ", 2) for n_fft=", options.n_fft, ", got ",
                      spectrum.shape());
}

// The window in a frame of n_fft, centred as PyTorch does it; Hann's where it is undefined.
Tensor framed_window(const char* name, const Tensor& window, std::int64_t win_length, std::int64_t n_fft, const Tensor& like) {
  const std::int64_t margin = n_fft - win_length;
  const Padding centring{margin / 2, margin - margin / 2};
  if (!window.defined())
    return ops::constant(name, {win_length, margin, 0}, like.dtype(), like.device(), [&] {
      return pad1d(hann_window(win_length, {like.dtype(), Device::cpu()}), centring);
    });
  ops::require_alike(name, std::array{like, window});
  require<ShapeError>(window.shape() == Shape{win_length}, name, ": expected window (win_length=", win_length, "), got ",
                      window.shape());
  return margin == 0 ? window : pad1d(window, centring);
}

// Twice every bin but the first and the last, over n: what irfft() weighs bins by.
Tensor bin_weights(std::int64_t bins, DType dtype, Device device) {
  return ops::constant("irfft", {bins, 0, 0}, dtype, device, [&] {
    const auto n = static_cast<double>(2 * (bins - 1));
    const Tensor wide =
        ops::host_table<double>(bins, [&](std::int64_t f) { return (f == 0 || f == bins - 1 ? 1.0 : 2.0) / n; });
    return wide.to(dtype).reshape({bins, 1});
  });
}

// The adjoint of rfft(): (..., n/2 + 1, 2) -> (..., n).
Tensor adjoint_of_rfft(const Tensor& spectrum) {
  const std::int64_t bins = spectrum.size(-2), n = 2 * (bins - 1), rows = spectrum.numel() / (2 * bins);
  Shape shape = Shape::filled(spectrum.rank() - 1, n);
  for (int d = 0; d + 2 < spectrum.rank(); ++d) shape[d] = spectrum.shape()[d];
  const Tensor out = Tensor::empty(shape, {spectrum.dtype(), spectrum.device()});
  if (rows > 0)
    backend_of(spectrum.device())
        .rfft_adjoint(ops::reshaped_view(out, {rows, n}), ops::reshaped_view(spectrum.detach().contiguous(), {rows, bins, 2}));
  return autograd::record("rfft_adjoint", out, {spectrum}, [](const Tensor& g, Needs) { return Gradients{rfft(g)}; });
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
  return autograd::record("rfft", out, {x}, [](const Tensor& g, Needs) { return Gradients{adjoint_of_rfft(g)}; });
}

Tensor irfft(const Tensor& spectrum) {
  if (autograd::raises(spectrum)) return irfft(autograd::raised(spectrum));
  require<DTypeError>(spectrum.dtype() == DType::f32 || spectrum.dtype() == DType::f64, "irfft: expected f32 or f64, got ",
                      spectrum.dtype());
  require<ShapeError>(spectrum.rank() >= 2 && spectrum.size(-1) == 2 && spectrum.size(-2) >= 2,
                      "irfft: expected a spectrum (..., bins >= 2, 2), got ", spectrum.shape());
  return adjoint_of_rfft(spectrum * bin_weights(spectrum.size(-2), spectrum.dtype(), spectrum.device()));
}

Tensor overlap_add(const Tensor& frames, std::int64_t step) {
  ops::require_floating("overlap_add", frames);
  require<ShapeError>(frames.rank() >= 2 && frames.size(-2) >= 1 && frames.size(-1) >= 1 && step >= 1,
                      "overlap_add: expected frames (..., frames >= 1, size >= 1) and step >= 1, got ", frames.shape(),
                      " and step ", step);
  const std::int64_t count = frames.size(-2), size = frames.size(-1), length = (count - 1) * step + size;
  Shape shape = Shape::filled(frames.rank() - 1, length);
  for (int d = 0; d + 2 < frames.rank(); ++d) shape[d] = frames.shape()[d];
  const Tensor out = Tensor::empty(shape, {frames.dtype(), frames.device()});
  const std::int64_t rows = frames.numel() / (count * size);
  if (rows > 0)
    backend_of(frames.device())
        .fold(ops::reshaped_view(out, {rows, length}), ops::reshaped_view(frames.detach().contiguous(), {rows, count, size}),
              step);
  return autograd::record("overlap_add", out, {frames},
                          [size, step](const Tensor& g, Needs) { return Gradients{g.unfold(size, step).contiguous()}; });
}

namespace {

/// stft() for `name`, an operation that says so where something does not fit.
Tensor stft_for(const char* name, const Tensor& x, const StftOptions& options, const Tensor& window) {
  if (autograd::raises(x)) return stft_for(name, autograd::raised(x), options, autograd::raised(window));
  check_stft(name, x, options);
  const Tensor framed = framed_window(name, window, options.win_length, options.n_fft, x);
  const Tensor padded = options.center ? pad1d(x, options.n_fft / 2, PaddingMode::reflect) : x;
  return rfft(padded.unfold(options.n_fft, options.hop_length) * framed);
}

}  // namespace

Tensor stft(const Tensor& x, const StftOptions& options, const Tensor& window) { return stft_for("stft", x, options, window); }

Tensor istft(const Tensor& spectrum, const IstftOptions& options, const Tensor& window) {
  check_istft(spectrum, options);
  const std::int64_t covered = (spectrum.size(-3) - 1) * options.hop_length + options.n_fft, cut = istft_cut(options);
  return istft_part(spectrum, options, window, cut, std::max<std::int64_t>(covered - 2 * cut, 0));
}

Tensor istft_part(const Tensor& spectrum, const IstftOptions& options, const Tensor& window, std::int64_t begin,
                  std::int64_t length) {
  if (autograd::raises(spectrum))
    return istft_part(autograd::raised(spectrum), options, autograd::raised(window), begin, length);
  check_istft(spectrum, options);
  const Tensor framed = framed_window(kIstft, window, options.win_length, options.n_fft, spectrum);
  const Tensor samples = overlap_add(irfft(spectrum) * framed, options.hop_length).narrow(-1, begin, length);
  const Tensor squares = square(framed).expand({spectrum.size(-3), options.n_fft}).contiguous();
  const Tensor envelope = overlap_add(squares, options.hop_length).narrow(-1, begin, length);
  if (length > 0 && envelope.device().is_cpu())
    require<ShapeError>(min(envelope).item() > kSmallestEnvelope, kIstft,
                        ": expected windows whose squares add up to more than 0 everywhere, got win_length=",
                        options.win_length, " and hop_length=", options.hop_length);
  return samples / envelope;
}

std::int64_t istft_cut(const IstftOptions& options) {
  return options.padding == IstftPadding::center ? options.n_fft / 2 : (options.n_fft - options.hop_length) / 2;
}

Tensor power_spectrogram(const Tensor& x, const StftOptions& options) {
  if (autograd::raises(x)) return power_spectrogram(autograd::raised(x), options);
  return sum(square(stft_for("power_spectrogram", x, options, {})), {-1});
}

}  // namespace polyphase
