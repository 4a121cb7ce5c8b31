#include "ops/spectral.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;
using Values = std::vector<double>;

// Real and imaginary part of each bin up to n/2.
Values plain_dft(const Values& x) {
  Values out;
  for (std::size_t f = 0; f <= x.size() / 2; ++f) {
    double real = 0;
    double imaginary = 0;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const double phase = 2 * std::numbers::pi * static_cast<double>(f * t % x.size()) / static_cast<double>(x.size());
      real += x[t] * std::cos(phase);
      imaginary -= x[t] * std::sin(phase);
    }
    out.insert(out.end(), {real, imaginary});
  }
  return out;
}

// Sample i of a signal padded by reflection at both ends.
double reflected(const Values& x, std::int64_t i) {
  const auto last = static_cast<std::int64_t>(x.size()) - 1;
  if (i < 0) i = -i;
  if (i > last) i = 2 * last - i;
  return x[static_cast<std::size_t>(i)];
}

Values plain_spectrogram(const Values& x, const StftOptions& o) {
  const auto length = static_cast<std::int64_t>(x.size());
  const std::int64_t before = o.center ? o.n_fft / 2 : 0;
  const std::int64_t margin = (o.n_fft - o.win_length) / 2;
  Values out;
  for (std::int64_t start = -before; start + o.n_fft <= length + before; start += o.hop_length) {
    Values frame(static_cast<std::size_t>(o.n_fft), 0);
    for (std::int64_t i = 0; i < o.win_length; ++i) {
      const double phase = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(o.win_length);
      frame[static_cast<std::size_t>(margin + i)] = reflected(x, start + margin + i) * (0.5 - 0.5 * std::cos(phase));
    }
    const Values bins = plain_dft(frame);
    for (std::size_t f = 0; f < bins.size(); f += 2) out.push_back(bins[f] * bins[f] + bins[f + 1] * bins[f + 1]);
  }
  return out;
}

}  // namespace

TEST_CASE("hann_window is periodic; of one element it lets everything through, as PyTorch's") {
  const TensorOptions wide{.dtype = DType::f64};
  CHECK(hann_window(0, wide).shape() == Shape{0});
  CHECK(hann_window(1, wide).to_vector<double>() == Values{1});
  CHECK(hann_window(1, {.dtype = DType::f16}).to(DType::f64).to_vector<double>() == Values{1});
  CHECK(hann_window(2, wide).to_vector<double>() == Values{0, 1});
  CHECK(max_difference(hann_window(3, wide), Tensor::from_vector<double>({0, 0.75, 0.75})) <= kDoubleRounding);
  CHECK(max_difference(hann_window(4, wide), Tensor::from_vector<double>({0, 0.5, 1, 0.5})) <= kDoubleRounding);
  CHECK(hann_window(8).dtype() == DType::f32);
  CHECK_FALSE(hann_window(8).requires_grad());
  CHECK(hann_window(8, {.requires_grad = true}).requires_grad());
  const StftOptions one{.n_fft = 2, .hop_length = 2, .win_length = 1, .center = false};
  const Tensor spectrum = power_spectrogram(Tensor::from_vector<double>({3, 5, -2, 7}), one);
  CHECK(spectrum.to_vector<double>() == Values{9, 9, 4, 4});  // the first element of each frame
}

TEST_CASE("a window that memory cannot hold is refused in numbers") {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  CHECK(error_of<OutOfMemory>([&] { return hann_window(kHuge); }).starts_with("cpu: out of memory: asked 8796093022208 bytes"));
  CHECK(error_of<ShapeError>([&] { return hann_window(std::int64_t{1} << 61); }) ==
        "empty: the bytes of (2305843009213693952,) f64 do not fit 64 bits");
  const Tensor x = Tensor::ones({1}).expand({kHuge});
  const StftOptions wide{.n_fft = kHuge / 2, .win_length = kHuge / 2};
  CHECK(error_of<OutOfMemory>([&] { return power_spectrogram(x, wide); }).starts_with("cpu: out of memory: asked "));
}

TEST_CASE("rfft agrees with the plain sum for any even length") {
  for (const std::int64_t n : {2, 4, 6, 8, 10, 12, 16, 30, 64, 98, 100}) {
    CAPTURE(n);
    const Tensor x = random_f64({n});
    const Tensor expected = Tensor::from_vector(plain_dft(x.to_vector<double>()), {n / 2 + 1, 2});
    CHECK(max_difference(rfft(x), expected) <= kDoubleSum);
    CHECK(max_difference(rfft(x.to(DType::f32)), expected) <= kFloatSum * 10);
  }
}

TEST_CASE("rfft: rows, strided input, gradients, empty") {
  const Tensor x = random_f64({2, 3, 6});
  CHECK(rfft(x).shape() == Shape{2, 3, 4, 2});
  CHECK(max_difference(rfft(x).select(0, 1), rfft(x.select(0, 1))) == 0);
  const Tensor strided = random_f64({6, 2}).transpose(0, 1);
  CHECK(max_difference(rfft(strided), rfft(strided.contiguous())) == 0);
  for (const std::int64_t n : {2, 6, 8})
    CHECK(gradcheck([](const Inputs& in) { return rfft(in[0]); }, {leaf_f64({2, n})}) == "");
  CHECK(gradcheck([](const Inputs& in) { return rfft(in[0].transpose(0, 1)); }, {leaf_f64({4, 2})}) == "");
  CHECK(rfft(random_f64({0, 4})).shape() == Shape{0, 3, 2});
}

TEST_CASE("power_spectrogram agrees with frames taken and transformed by hand") {
  const Tensor x = random_f64({50});
  const std::vector<StftOptions> all = {{.n_fft = 16, .hop_length = 4, .win_length = 16},
                                        {.n_fft = 16, .hop_length = 5, .win_length = 11},
                                        {.n_fft = 16, .hop_length = 7, .win_length = 10, .center = false},
                                        {.n_fft = 12, .hop_length = 20, .win_length = 12},
                                        {.n_fft = 20, .hop_length = 6, .win_length = 16}};  // the first one's window, padded
  for (const StftOptions& options : all) {
    CAPTURE(options.win_length);
    const Values expected = plain_spectrogram(x.to_vector<double>(), options);
    const Tensor power = power_spectrogram(x, options);
    CHECK(power.size(-1) == options.n_fft / 2 + 1);
    CHECK(max_difference(power.flatten(), Tensor::from_vector(expected)) <= kDoubleSum);
    CHECK(gradcheck([&](const Inputs& in) { return power_spectrogram(in[0], options); }, {leaf_f64({2, 21})}) == "");
  }
  CHECK(power_spectrogram(random_f64({2, 3, 50}), all[0]).shape() == Shape{2, 3, 13, 9});
  CHECK(power_spectrogram(random_f64({4096})).shape() == Shape{17, 513});
}

TEST_CASE("errors") {
  const Tensor x = random_f64({2, 100});
  CHECK(error_of<ShapeError>([&] { return rfft(random_f64({5})); }) == "rfft: expected x (..., n) with n even, got (5,)");
  CHECK(error_of<ShapeError>([&] { return rfft(random_f64({0})); }) == "rfft: expected x (..., n) with n even, got (0,)");
  CHECK(error_of<DTypeError>([&] { return rfft(x.to(DType::f16)); }) == "rfft: expected f32 or f64, got f16");
  CHECK(error_of<ShapeError>([&] { return power_spectrogram(x, {.n_fft = 15}); }) ==
        "power_spectrogram: expected an even n_fft >= 2, got 15");
  CHECK(error_of<ShapeError>([&] { return power_spectrogram(x, {.n_fft = 16, .hop_length = 0, .win_length = 16}); }) ==
        "power_spectrogram: expected hop_length >= 1, got 0");
  CHECK(error_of<ShapeError>([&] { return power_spectrogram(x, {.n_fft = 16, .win_length = 17}); }) ==
        "power_spectrogram: expected win_length in [1, n_fft=16], got 17");
  CHECK(error_of<ShapeError>([&] { return power_spectrogram(x); }) ==
        "power_spectrogram: expected x (..., L >= 513) for n_fft=1024, got (2, 100)");
  CHECK(error_of<ShapeError>([] { return hann_window(-1); }) == "hann_window: expected length >= 0, got -1");
}

namespace {

// All samples that the frames cover: the sum of each frame's inverse transform times the window, over the sum of squares.
Values plain_istft(const Values& spectrum, const Values& window, std::size_t hop) {
  const std::size_t n = window.size(), bins = n / 2 + 1, frames = spectrum.size() / (2 * bins);
  Values sum((frames - 1) * hop + n, 0), squares(sum.size(), 0);
  for (std::size_t frame = 0; frame < frames; ++frame)
    for (std::size_t t = 0; t < n; ++t) {
      double value = 0;
      for (std::size_t f = 0; f < bins; ++f) {
        const double phase = 2 * std::numbers::pi * static_cast<double>(f * t % n) / static_cast<double>(n);
        const double real = spectrum[2 * (frame * bins + f)], imaginary = spectrum[2 * (frame * bins + f) + 1];
        const double both = f == 0 || f == n / 2 ? 1 : 2;  // also counts the mirrored bin
        value += both * (real * std::cos(phase) - imaginary * std::sin(phase)) / static_cast<double>(n);
      }
      sum[frame * hop + t] += value * window[t];
      squares[frame * hop + t] += window[t] * window[t];
    }
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] /= squares[i];
  return sum;
}

Values without_ends(const Values& x, std::size_t cut) {
  return {x.begin() + static_cast<std::ptrdiff_t>(cut), x.end() - static_cast<std::ptrdiff_t>(cut)};
}

Tensor as_tensor(const Values& values) { return Tensor::from_vector(values); }

}  // namespace

TEST_CASE("irfft is the inverse of rfft, and passes over what a real signal cannot have") {
  for (const std::int64_t n : {2, 4, 10, 64}) {
    const Tensor x = random_f64({3, n});
    CHECK(max_difference(irfft(rfft(x)), x) < kDoubleRounding);
  }
  Tensor spectrum = rfft(random_f64({10}));
  const Tensor before = irfft(spectrum);
  Values values = spectrum.to_vector<double>();
  values[1] = 5;           // the imaginary parts of the first
  values[2 * 5 + 1] = -3;  // and the last bin are ignored
  CHECK(max_difference(irfft(Tensor::from_vector(values, {6, 2})), before) < kDoubleRounding);
  CHECK(irfft(spectrum.to(DType::f32)).dtype() == DType::f32);
  CHECK(irfft(Tensor::zeros({0, 6, 2})).shape() == Shape{0, 10});
  CHECK(gradcheck([](const Inputs& x) { return irfft(x[0]); }, {leaf_f64({2, 4, 2})}) == "");
}

TEST_CASE("overlap_add sums the frames that unfold cuts") {
  const Tensor frames = Tensor::from_vector<double>({1, 2, 3, 10, 20, 30, 100, 200, 300}, {3, 3});
  CHECK(overlap_add(frames, 2).to_vector<double>() == Values{1, 2, 13, 20, 130, 200, 300});
  CHECK(overlap_add(frames, 3).to_vector<double>() == frames.to_vector<double>());
  CHECK(overlap_add(frames, 4).to_vector<double>() == Values{1, 2, 3, 0, 10, 20, 30, 0, 100, 200, 300});
  CHECK(overlap_add(frames.to(DType::f16), 1).to(DType::f64).to_vector<double>() == Values{1, 12, 123, 230, 300});
  CHECK(overlap_add(Tensor::zeros({2, 0, 3, 3}), 2).shape() == Shape{2, 0, 7});
  CHECK(gradcheck([](const Inputs& x) { return overlap_add(x[0], 2); }, {leaf_f64({2, 3, 5})}) == "");
}

TEST_CASE("stft has both parts of every bin; a window of one's own") {
  const StftOptions options{.n_fft = 8, .hop_length = 3, .win_length = 6};
  const Tensor x = random_f64({2, 20});
  const Tensor spectrum = stft(x, options);
  CHECK(spectrum.shape() == Shape{2, 7, 5, 2});
  CHECK(max_difference(power_spectrogram(x, options), spectrum.select(-1, 0) * spectrum.select(-1, 0) +
                                                          spectrum.select(-1, 1) * spectrum.select(-1, 1)) < kDoubleRounding);
  const Tensor window = uniform_f64({6}, 0.5, 1, 4);
  const StftOptions bare{.n_fft = 8, .hop_length = 3, .win_length = 6, .center = false};
  const Values samples = x.select(0, 1).to_vector<double>(), taps = window.to_vector<double>();
  Values frame(8, 0);
  for (std::size_t i = 0; i < 6; ++i) frame[i + 1] = samples[i + 4] * taps[i];
  CHECK(max_difference(stft(x.select(0, 1), bare, window).select(0, 1).flatten(), as_tensor(plain_dft(frame))) <
        kDoubleRounding);
  CHECK(gradcheck([&](const Inputs& in) { return stft(in[0], options, in[1]); }, {leaf_f64({2, 9}), leaf_f64({6}, 2)}) == "");
}

TEST_CASE("istft: the formula, at either padding, with Hann's window and another") {
  const Tensor spectrum = random_f64({6, 5, 2}, 2), window = uniform_f64({8}, 0.5, 1, 3);
  const Values whole = plain_istft(spectrum.to_vector<double>(), window.to_vector<double>(), 3);
  const IstftOptions center{.n_fft = 8, .hop_length = 3, .win_length = 8};
  IstftOptions same = center;
  same.padding = IstftPadding::same;
  CHECK(max_difference(istft(spectrum, center, window), as_tensor(without_ends(whole, 4))) < kDoubleRounding);
  CHECK(istft(spectrum, center, window).shape() == Shape{15});
  CHECK(max_difference(istft(spectrum, same, window), as_tensor(without_ends(whole, 2))) < kDoubleRounding);  // 5/2
  CHECK(max_difference(istft_part(spectrum, same, window, 7, 4), as_tensor(whole).narrow(0, 7, 4)) < kDoubleRounding);
  const Tensor hann = hann_window(8, {.dtype = DType::f64});
  CHECK(max_difference(istft(spectrum, center), istft(spectrum, center, hann)) < kDoubleRounding);
  for (const IstftOptions& options : {center, same})
    CHECK(gradcheck([&](const Inputs& x) { return istft(x[0], options, x[1]); },
                    {leaf_f64({2, 3, 5, 2}), uniform_f64({8}, 0.5, 1).set_requires_grad(true)}) == "");
  CHECK(istft(spectrum.narrow(0, 0, 1), center).shape() == Shape{0});
}

TEST_CASE("istft is the inverse of stft") {
  const Tensor x = random_f64({2, 61});
  for (const std::int64_t win : {16, 12}) {
    const StftOptions options{.n_fft = 16, .hop_length = 4, .win_length = win};
    const IstftOptions inverse{.n_fft = 16, .hop_length = 4, .win_length = win};
    CHECK(max_difference(istft(stft(x, options), inverse), x.narrow(1, 0, 60)) < kDoubleRounding);
  }
}

TEST_CASE("spectra that do not fit are refused in words") {
  CHECK(error_of<ShapeError>([] {
          return irfft(random_f64({3, 3}));
        }) == "irfft: expected a spectrum (..., bins >= 2, 2), got (3, 3)");
  CHECK(error_of<DTypeError>([] { return irfft(random_f64({3, 2}).to(DType::f16)); }) == "irfft: expected f32 or f64, got f16");
  CHECK(error_of<ShapeError>([] { return overlap_add(random_f64({3, 4}), 0); }).find("step 0") != std::string::npos);
  CHECK(error_of<ShapeError>([] { return overlap_add(random_f64({0, 4}), 1); }).find("(0, 4)") != std::string::npos);
  const Tensor spectrum = random_f64({6, 5, 2});
  const auto error = [&](const IstftOptions& options, const Tensor& window = {}) {
    return error_of<ShapeError>([&] { return istft(spectrum, options, window); });
  };
  CHECK(error({.n_fft = 16, .hop_length = 4, .win_length = 16}) ==
        "istft: expected a spectrum (..., frames >= 1, 9, 2) for n_fft=16, got (6, 5, 2)");
  CHECK(error({.n_fft = 8, .hop_length = 9, .win_length = 8}) == "istft: expected hop_length <= n_fft=8, got 9");
  CHECK(error({.n_fft = 8, .hop_length = 4, .win_length = 9}).find("win_length in [1, n_fft=8]") != std::string::npos);
  CHECK(error({.n_fft = 8, .hop_length = 4, .win_length = 8}, random_f64({7})) ==
        "istft: expected window (win_length=8), got (7,)");
  if (default_device().is_cpu())  // a GPU does not wait for the result
    CHECK(error({.n_fft = 8, .hop_length = 8, .win_length = 8}).find("add up to more than 0 everywhere") != std::string::npos);
  CHECK(error_of<ShapeError>([] { return stft(random_f64({4}), {.n_fft = 8, .hop_length = 4, .win_length = 8}); }) ==
        "stft: expected x (..., L >= 5) for n_fft=8, got (4,)");
}
