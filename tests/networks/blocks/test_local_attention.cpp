#include "networks/blocks/local_attention.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/upsample.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Values = std::vector<double>;
constexpr std::size_t kHead = 64;

/// The module in plain arithmetic: x has C rows of L positions, in windows of positions.
Values plain_attention(const StateOf& state, const Values& x, std::size_t C, std::size_t L, std::size_t window) {
  const auto of = [&](const char* name) { return f64_values(state[name]); };
  const Values gain = of("norm.weight"), shift = of("norm.bias"), to_qkv = of("to_qkv.weight"), to_out = of("to_out.weight"),
               frequency = of("rel_pos.inv_freq");
  Values qkv(L * 3 * C);
  for (std::size_t t = 0; t < L; ++t) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < C; ++c) mean += x[c * L + t] / static_cast<double>(C);
    for (std::size_t c = 0; c < C; ++c) variance += (x[c * L + t] - mean) * (x[c * L + t] - mean) / static_cast<double>(C);
    for (std::size_t row = 0; row < 3 * C; ++row)
      for (std::size_t c = 0; c < C; ++c)
        qkv[t * 3 * C + row] += to_qkv[row * C + c] * ((x[c * L + t] - mean) / std::sqrt(variance + 1e-5) * gain[c] + shift[c]);
  }
  // q and k rotated: element i with i + 32.
  for (std::size_t t = 0; t < L; ++t)
    for (std::size_t head = 0; head < 2 * C; head += kHead)
      for (std::size_t i = 0; i < kHead / 2; ++i) {
        double &a = qkv[t * 3 * C + head + i], &b = qkv[t * 3 * C + head + kHead / 2 + i];
        const double angle = static_cast<double>(t % window) * frequency[i], before = a;
        a = before * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + before * std::sin(angle);
      }
  Values seen(L * C), y = x;
  for (std::size_t t = 0; t < L; ++t)
    for (std::size_t head = 0; head < C; head += kHead) {
      const std::size_t first = t / window * window;
      Values share(window);
      double total = 0;
      for (std::size_t j = 0; j < window; ++j) {
        double product = 0;
        for (std::size_t i = 0; i < kHead; ++i) product += qkv[t * 3 * C + head + i] * qkv[(first + j) * 3 * C + C + head + i];
        total += share[j] = std::exp(product / 8);
      }
      for (std::size_t j = 0; j < window; ++j)
        for (std::size_t i = 0; i < kHead; ++i)
          seen[t * C + head + i] += share[j] / total * qkv[(first + j) * 3 * C + 2 * C + head + i];
    }
  for (std::size_t t = 0; t < L; ++t)
    for (std::size_t row = 0; row < C; ++row)
      for (std::size_t c = 0; c < C; ++c) y[row * L + t] += to_out[row * C + c] * seen[t * C + c];
  return y;
}

}  // namespace

TEST_CASE("attention within windows is the formula") {
  manual_seed(1);
  LocalAttention attention(128, 4);
  attention.to(DType::f64);
  const StateOf state(attention);
  const NoGradGuard no_grad;
  state["norm.bias"].narrow(0, 3, 1) += 0.5;
  const Tensor x = random_f64({2, 128, 8});
  const Values y = f64_values(attention(x));
  for (std::int64_t n = 0; n < 2; ++n) {
    const Values expected = plain_attention(state, f64_values(x.select(0, n)), 128, 8, 4);
    CHECK(relative_difference(f64_values(attention(x).select(0, n)), expected) < kDoubleSum);
  }
}

TEST_CASE("names") {
  LocalAttention attention(64, 4);
  const StateOf state(attention);
  CHECK(state.size() == 5);
  CHECK(state["to_qkv.weight"].shape() == Shape{192, 64});
  CHECK(state["rel_pos.inv_freq"].shape() == Shape{32});
  CHECK(state["rel_pos.inv_freq"].narrow(0, 0, 1).item() == 1);
}

TEST_CASE("in 16 bits the angles keep their digits") {
  manual_seed(2);
  LocalAttention attention(64, 32);
  check_halves(attention, random_f64({1, 64, 64}));
}

TEST_CASE("gradients reach every parameter and the input") {
  manual_seed(3);
  LocalAttention attention(64, 4);
  Tensor x = Tensor::randn({1, 64, 8});
  x.set_requires_grad(true);
  mse_loss(attention(x), Tensor::zeros({1, 64, 8})).backward();
  CHECK(x.grad().defined());
  for (const auto& entry : attention.named_parameters()) CHECK_MESSAGE(entry.second.grad().defined(), entry.first);
}

TEST_CASE("a stream waits for whole windows") {
  manual_seed(4);
  LocalAttention attention(64, 8);
  check_stream(attention, {2, 64, 88});
  CHECK(Stream(attention).latency() == 7);
  CHECK(receptive_field(attention).left == 7);
  Sequential net(Upsample({.scale_factor = 4}), LocalAttention(64, 8), Upsample({.scale_factor = 3}));
  CHECK(net.make_stream()->period() == 24);
  CHECK(Stream(net).latency() == 1);  // a window is two positions and begins with one
  Sequential across(ConvTranspose1d({.in_channels = 64, .out_channels = 64, .kernel_size = 3, .stride = 3}),
                    LocalAttention(64, 8));
  CHECK(across.make_stream()->period() == 24);
  CHECK(Stream(across).latency() == 3);  // a window of 8 to 15 begins with input 2 and ends with input 5
  CHECK(receptive_field(across).left == 3);
  MeanOfBranches branches(LocalAttention(64, 8), Residual(LocalAttention(64, 12)));
  CHECK(branches.make_stream()->period() == 24);
  CHECK(Stream(branches).latency() == 11);
  Stream stream(attention);
  const Tensor some = Tensor::ones({1, 64, 11}, {DType::f64});
  CHECK(stream.push(some).size(2) == 8);
  CHECK(error_of<ShapeError>([&] { return stream.finish(); }) == "LocalAttention: expected a multiple of 8 positions, got 3");
}

TEST_CASE("what does not fit is refused in words") {
  LocalAttention attention(64, 8);
  CHECK(error_of<ShapeError>([&] { return attention(Tensor::ones({1, 64, 12})); }).find("got 12") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return attention(Tensor::ones({1, 32, 8})); }).find("(N, 64, L)") != std::string::npos);
  CHECK(error_of<ShapeError>([] { return LocalAttention(96, 8).is_training(); }).find("96") != std::string::npos);
  CHECK(error_of<ShapeError>([] { return LocalAttention(64, 0).is_training(); }).find("got 0") != std::string::npos);
}
