#include "layers/spectral/mel_spectrogram.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/autocast.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/linear.hpp"
#include "ops/reduce.hpp"
#include "ops/spectral.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

MelSpectrogram::Options small() {
  return {.mel = {.sample_rate = 1000, .n_fft = 32, .n_mels = 5}, .hop_length = 8, .dtype = DType::f64};
}

MelSpectrogram::Options vocos_like() {
  MelSpectrogram::Options options = small();
  options.mel.scale = MelScale::htk;
  options.mel.is_normalized = false;
  options.padding = MelSpectrogram::Padding::center;
  options.power_floor = 0;
  options.clip = 1e-7;
  return options;
}

}  // namespace

TEST_CASE("mel spectrogram: the originals' formulas, step by step") {
  const Tensor x = random_f64({2, 50});
  const auto check = [&](const MelSpectrogram::Options& options, std::int64_t reflected, std::int64_t frames) {
    MelSpectrogram layer(options);
    const std::int64_t win = options.win_length == 0 ? 32 : options.win_length;
    const Tensor padded = pad1d(x, reflected, PaddingMode::reflect);
    const Tensor power = power_spectrogram(padded, {.n_fft = 32, .hop_length = 8, .win_length = win, .center = false});
    const Tensor magnitude = sqrt(power + options.power_floor);
    const Tensor bands = matmul(mel_filters(options.mel).to(DType::f64).to(x.device()), magnitude.transpose(1, 2));
    CHECK(layer(x).shape() == Shape{2, 5, frames});
    CHECK(max_difference(layer(x), log(clamp(bands, options.clip, 1e30))) < kDoubleRounding);
    CHECK(max_difference(layer(x.select(0, 1)), layer(x).select(0, 1)) < kDoubleRounding);
  };
  check(small(), 12, 6);
  check(vocos_like(), 16, 7);
  MelSpectrogram::Options shorter = small();
  shorter.win_length = 20;
  check(shorter, 12, 6);
}

TEST_CASE("mel spectrogram: gradients, also in silence") {
  for (const MelSpectrogram::Options& options : {small(), vocos_like()}) {
    MelSpectrogram layer(options);
    CHECK(layer_gradcheck(layer, {1, 40}) == "");
    Tensor silence = Tensor::zeros({1, 40}, {.dtype = DType::f64});
    silence.set_requires_grad(true);
    const Tensor y = layer(silence);
    sum(y).backward();
    for (const double value : silence.grad().to_vector<double>()) CHECK(value == 0);
    CHECK(layer.parameters().empty());
  }
  MelSpectrogram layer(vocos_like());
  const Tensor quiet = layer(Tensor::zeros({1, 40}, {.dtype = DType::f64}));
  CHECK(max_difference(quiet, Tensor::full(quiet.shape(), std::log(1e-7), {.dtype = DType::f64})) < kDoubleRounding);
}

TEST_CASE("mel spectrogram: f32, and 16 bits computed in f32") {
  const Tensor x = random_f64({2, 64});
  MelSpectrogram exact(small());
  MelSpectrogram::Options options = small();
  options.dtype = DType::f32;
  MelSpectrogram layer(options);
  CHECK(max_difference(layer(x.to(DType::f32)), exact(x)) < kFloatSum);
  const Tensor rounded = x.to(DType::bf16);
  CHECK(max_difference(layer(rounded), layer(rounded.to(DType::f32)).to(DType::bf16)) == 0);
  CHECK(layer(rounded).dtype() == DType::bf16);
  const Tensor exactly = layer(x.to(DType::f32));
  const AutocastGuard guard(DType::bf16);
  CHECK(max_difference(layer(x.to(DType::f32)), exactly) == 0);
}

TEST_CASE("mel spectrogram: what does not fit is said") {
  MelSpectrogram::Options options = small();
  options.hop_length = 33;
  CHECK(error_of<ShapeError>([&] { return MelSpectrogram(options), 0; }) ==
        "MelSpectrogram: expected hop_length in [1, n_fft=32], got 33");
  options = small();
  options.clip = 0;
  CHECK(error_of<ShapeError>([&] { return MelSpectrogram(options), 0; }).find("clip > 0") != std::string::npos);
  options = small();
  options.mel.n_mels = 0;
  CHECK(error_of<ShapeError>([&] { return MelSpectrogram(options), 0; }).find("n_mels >= 1") != std::string::npos);
  MelSpectrogram layer(small());
  CHECK(error_of<ShapeError>([&] {
          return layer(random_f64({2, 12}));
        }) == "MelSpectrogram: expected x (..., L >= 13), got (2, 12)");
}
