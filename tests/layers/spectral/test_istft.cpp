#include "layers/spectral/istft.hpp"

#include <doctest/doctest.h>

#include "ops/length.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("ISTFT: the function of real parts, then imaginary parts, with the buffer's window") {
  for (const IstftPadding padding : {IstftPadding::center, IstftPadding::same}) {
    ISTFT layer({.n_fft = 8, .hop_length = 3, .padding = padding, .dtype = DType::f64});
    CHECK(layer.state_dict().front().first == "window");
    const Tensor x = random_f64({2, 10, 6});
    const Tensor spectrum =
        stack({x.narrow(1, 0, 5).transpose(1, 2), x.narrow(1, 5, 5).transpose(1, 2)}, -1);  // (N, frames, bins, 2)
    const IstftOptions options{.n_fft = 8, .hop_length = 3, .win_length = 8, .padding = padding};
    CHECK(max_difference(layer(x), istft(spectrum, options).unsqueeze(1)) < kDoubleRounding);
    const Tensor window = uniform_f64({8}, 0.5, 1);
    layer.load_state_dict({{"window", window}});
    CHECK(max_difference(layer(x), istft(spectrum, options, window).unsqueeze(1)) < kDoubleRounding);
    CHECK(layer_gradcheck(layer, {1, 10, 3}) == "");
  }
}

TEST_CASE("ISTFT: 16 bits are transformed in f32") {
  const Tensor x = random_f64({1, 10, 6}).to(DType::bf16);
  ISTFT layer({.n_fft = 8, .hop_length = 2});
  const Tensor exact = layer(x.to(DType::f32));
  CHECK(layer(x).dtype() == DType::bf16);
  CHECK(max_difference(layer(x), exact.to(DType::bf16)) == 0);
}

TEST_CASE("ISTFT in pieces: frames wait for those that they overlap with") {
  for (const IstftPadding padding : {IstftPadding::center, IstftPadding::same})
    for (const auto& [n_fft, hop, win] : {std::tuple{16, 4, 16}, {16, 5, 16}, {16, 7, 12}, {8, 1, 8}, {12, 11, 12}}) {
      ISTFT layer({.n_fft = n_fft, .hop_length = hop, .win_length = win, .padding = padding});
      // A window without zeros, so that a hop of the window's length is allowed.
      layer.load_state_dict({{"window", uniform_f64({win}, 0.5, 1)}});
      for (const std::int64_t frames : {2, 3, 9, 70}) {
        CAPTURE(frames);
        check_stream(layer, {2, n_fft + 2, frames});
      }
    }
  ISTFT one({.n_fft = 16, .hop_length = 4, .padding = IstftPadding::same});
  one.load_state_dict({{"window", Tensor::ones({16})}});
  check_stream(one, {1, 18, 1});
  ISTFT layer({.n_fft = 16, .hop_length = 4});
  Stream stream(layer);
  CHECK(stream.rate().up == 4);
  CHECK(stream.push(Tensor::ones({1, 18, 2})).shape() == Shape{1, 1, 0});
  CHECK(stream.push(Tensor::ones({1, 18, 2})).size(2) == 8);
  CHECK(stream.finish().size(2) == 4);
  CHECK(stream.latency() == 2);
}

TEST_CASE("ISTFT: what does not fit is said") {
  CHECK(error_of<ShapeError>([] { return ISTFT({.n_fft = 7}), 0; }) == "ISTFT: expected an even n_fft, got 7");
  CHECK(error_of<ShapeError>([] { return ISTFT({.n_fft = 8, .hop_length = 9}), 0; }) ==
        "ISTFT: expected hop_length and win_length of at most n_fft=8, got 9 and 8");
  CHECK(error_of<DTypeError>([] { return ISTFT({.dtype = DType::i64}), 0; }).starts_with("ISTFT: "));
  ISTFT layer({.n_fft = 8, .hop_length = 2});
  CHECK(error_of<ShapeError>([&] {
          return layer(Tensor::ones({1, 9, 3}));
        }) == "ISTFT: expected x (N, n_fft + 2=10, frames >= 1), got (1, 9, 3)");
  if (!default_device().is_cpu()) return;  // a GPU does not wait for the result
  ISTFT zeros({.n_fft = 8, .hop_length = 8});
  CHECK(error_of<ShapeError>([&] {
          return zeros(Tensor::ones({1, 10, 3}));
        }).find("add up to more than 0") != std::string::npos);
}
