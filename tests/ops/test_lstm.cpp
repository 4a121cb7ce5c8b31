#include "ops/lstm.hpp"

#include <doctest/doctest.h>

#include "autograd/autocast.hpp"
#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

LstmWeights weights_of(std::int64_t C, std::int64_t H, DType dtype = DType::f64) {
  const auto small = [&](const Shape& shape, std::uint64_t seed) { return (random_f64(shape, seed) * 0.5).to(dtype); };
  return {small({4 * H, C}, 2), small({4 * H, H}, 3), small({4 * H}, 4), small({4 * H}, 5)};
}

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("lstm agrees with its formula") {
  constexpr std::size_t N = 2, L = 5, C = 3, H = 4;
  const Tensor x = random_f64({N, L, C});
  const LstmWeights weights = weights_of(C, H);
  const LstmState state = {random_f64({N, H}, 6), random_f64({N, H}, 7)};
  const LstmResult result = lstm(x, weights, state);
  REQUIRE(result.y.shape() == Shape{N, L, H});
  const auto xs = x.to_vector<double>(), ys = result.y.to_vector<double>();
  const auto wi = weights.input.to_vector<double>(), wh = weights.hidden.to_vector<double>();
  const auto bi = weights.input_bias.to_vector<double>(), bh = weights.hidden_bias.to_vector<double>();
  auto h = state.hidden.to_vector<double>(), c = state.cell.to_vector<double>();
  for (std::size_t n = 0; n < N; ++n)
    for (std::size_t t = 0; t < L; ++t) {
      std::vector<double> gates(4 * H);
      for (std::size_t r = 0; r < 4 * H; ++r) {
        gates[r] = bi[r] + bh[r];
        for (std::size_t k = 0; k < C; ++k) gates[r] += wi[r * C + k] * xs[(n * L + t) * C + k];
        for (std::size_t k = 0; k < H; ++k) gates[r] += wh[r * H + k] * h[n * H + k];
      }
      for (std::size_t k = 0; k < H; ++k) {
        double& cell = c[n * H + k];
        cell = sigmoid_of(gates[H + k]) * cell + sigmoid_of(gates[k]) * std::tanh(gates[2 * H + k]);
        h[n * H + k] = sigmoid_of(gates[3 * H + k]) * std::tanh(cell);
        CHECK(std::abs(h[n * H + k] - ys[(n * L + t) * H + k]) <= kDoubleRounding);
      }
    }
  CHECK(max_difference(result.state.hidden, Tensor::from_vector(h, {N, H})) <= kDoubleRounding);
  CHECK(max_difference(result.state.cell, Tensor::from_vector(c, {N, H})) <= kDoubleRounding);
}

TEST_CASE("lstm: gradients of input, weights, biases and state, through output and state") {
  const auto function = [](const std::vector<Tensor>& in) {
    const LstmResult result = lstm(in[0], {in[1], in[2], in[3], in[4]}, {in[5], in[6]});
    return sum(square(result.y)) + sum(result.state.hidden * result.state.cell);
  };
  const std::vector<Tensor> weights{leaf_f64({12, 2}, 2), leaf_f64({12, 3}, 3), leaf_f64({12}, 4), leaf_f64({12}, 5)};
  for (const Shape& shape : {Shape{2, 4, 2}, Shape{1, 1, 2}}) {
    const Shape state{shape[0], 3};
    CHECK(gradcheck(function, {leaf_f64(shape), weights[0], weights[1], weights[2], weights[3], leaf_f64(state, 6),
                               leaf_f64(state, 7)}) == "");
    CHECK(gradcheck(function, {leaf_f64(shape), weights[0], weights[1], Tensor(), Tensor(), Tensor(), Tensor()}) == "");
    CHECK(gradcheck(function, {random_f64(shape), weights[0].detach(), weights[1], weights[2], Tensor(), Tensor(),
                               leaf_f64(state, 7)}) == "");
  }
}

TEST_CASE("lstm: a stream has the bits of the whole") {
  if (default_device().is_cuda()) SKIP_TEST("only the CPU sums products of all sizes in one order");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const Tensor x = random_f64({2, 40, 70}).to(dtype);
    const LstmWeights weights = weights_of(70, 37, dtype);
    const Tensor whole = lstm(x, weights).y;
    for (const std::int64_t size : {1, 2, 3, 8, 40}) {
      LstmState state;
      for (std::int64_t t = 0; t < 40; t += size) {
        const std::int64_t count = std::min(size, 40 - t);
        const LstmResult part = lstm(x.narrow(1, t, count), weights, state);
        CHECK(max_difference(part.y, whole.narrow(1, t, count)) == 0);
        state = part.state;
      }
    }
  }
}

namespace {

std::vector<LstmWeights> stack_of(std::int64_t C, const std::vector<std::int64_t>& units, DType dtype = DType::f64) {
  std::vector<LstmWeights> layers;
  for (const std::int64_t H : units) {
    layers.push_back(weights_of(C, H, dtype));
    C = H;
  }
  return layers;
}

}  // namespace

TEST_CASE("lstm_stack is its layers one after another, in bits on the CPU") {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const std::vector<std::int64_t>& units : {std::vector<std::int64_t>{9}, {9, 9}, {9, 9, 9}, {9, 5, 5, 12}}) {
      const Tensor x = random_f64({2, 11, 7}).to(dtype);
      const std::vector<LstmWeights> layers = stack_of(7, units, dtype);
      std::vector<LstmState> states;
      const DType state_dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
      for (const std::int64_t H : units)
        states.push_back({random_f64({2, H}, 6).to(state_dtype), random_f64({2, H}, 7).to(state_dtype)});
      const LstmStackResult stack = lstm_stack(x, layers, states);
      Tensor y = dtype == DType::f64 ? x : x.to(DType::f32);
      const bool is_exact = default_device().is_cpu();
      for (std::size_t k = 0; k < layers.size(); ++k) {
        const auto wide = [&](const Tensor& tensor) { return tensor.to(y.dtype()); };
        const LstmResult one =
            lstm(y, {wide(layers[k].input), wide(layers[k].hidden), wide(layers[k].input_bias), wide(layers[k].hidden_bias)},
                 states[k]);
        CHECK(max_difference(stack.states[k].hidden, one.state.hidden) <= (is_exact ? 0 : kFloatSum));
        CHECK(max_difference(stack.states[k].cell, one.state.cell) <= (is_exact ? 0 : kFloatSum));
        y = one.y;
      }
      if (is_exact) CHECK(max_difference(stack.y, y.to(dtype)) == 0);
    }
}

TEST_CASE("lstm_stack: gradients of every input of two layers, through the output and every state") {
  for (const std::vector<std::int64_t>& units : {std::vector<std::int64_t>{3, 3}, {3, 2}}) {
    const std::int64_t H = units[0], J = units[1];
    const auto function = [](const std::vector<Tensor>& in) {
      const std::vector<LstmWeights> layers{{in[1], in[2], in[3], in[4]}, {in[5], in[6], in[7], in[8]}};
      const std::vector<LstmState> states{{in[9], in[10]}, {in[11], in[12]}};
      const LstmStackResult result = lstm_stack(in[0], layers, states);
      Tensor all = sum(square(result.y));
      for (const LstmState& state : result.states) all = all + sum(state.hidden * state.cell);
      return all;
    };
    CHECK(gradcheck(function, {leaf_f64({2, 4, 2}), leaf_f64({4 * H, 2}, 2), leaf_f64({4 * H, H}, 3), leaf_f64({4 * H}, 4),
                               leaf_f64({4 * H}, 5), leaf_f64({4 * J, H}, 6), leaf_f64({4 * J, J}, 7), leaf_f64({4 * J}, 8),
                               leaf_f64({4 * J}, 9), leaf_f64({2, H}, 10), leaf_f64({2, H}, 11), leaf_f64({2, J}, 12),
                               leaf_f64({2, J}, 13)}) == "");
    CHECK(gradcheck(function, {random_f64({2, 4, 2}), random_f64({4 * H, 2}, 2), leaf_f64({4 * H, H}, 3), Tensor(), Tensor(),
                               random_f64({4 * J, H}, 6), random_f64({4 * J, J}, 7), leaf_f64({4 * J}, 8), Tensor(), Tensor(),
                               Tensor(), Tensor(), Tensor()}) == "");
  }
}

TEST_CASE("lstm_stack: a state that is written in place before the backward pass is an error") {
  const std::vector<LstmWeights> layers{{leaf_f64({12, 2}, 2), leaf_f64({12, 3}, 3)},
                                        {leaf_f64({12, 3}, 4), leaf_f64({12, 3}, 5)}};
  std::vector<LstmState> states{{random_f64({1, 3}, 6), random_f64({1, 3}, 7)}, {}};
  const LstmStackResult result = lstm_stack(random_f64({1, 4, 2}), layers, states);
  const Tensor loss = sum(result.y);
  states[0].cell.fill_(1);
  CHECK_THROWS_AS(loss.backward(), AutogradError);
}

TEST_CASE("lstm_stack: no layer, another number of states, sizes that do not fit") {
  const Tensor x = random_f64({1, 4, 3});
  const std::vector<LstmWeights> layers = stack_of(3, {2, 5});
  CHECK(error_of<ShapeError>([&] { return lstm_stack(x, {}).y; }) == "lstm: expected at least one layer, got none");
  CHECK(error_of<ShapeError>([&] { return lstm_stack(x, layers, std::vector<LstmState>(1)).y; }) ==
        "lstm: expected a state of 2 layers, got 1");
  CHECK(error_of<ShapeError>([&] {
          return lstm_stack(x, std::vector<LstmWeights>{layers[0], weights_of(3, 5)}).y;
        }) == "lstm: expected weight_ih (20, 2), got (20, 3)");
}

TEST_CASE("lstm: dtypes, autocast and inputs of nothing") {
  const LstmWeights weights = weights_of(6, 8);
  const Tensor x = random_f64({2, 9, 6});
  const auto in = [&](DType dtype) {
    return LstmWeights{weights.input.to(dtype), weights.hidden.to(dtype), weights.input_bias.to(dtype),
                       weights.hidden_bias.to(dtype)};
  };
  CHECK(max_difference(lstm(x.to(DType::f32), in(DType::f32)).y, lstm(x, weights).y) <= kFloatSum);
  for (const auto& [dtype, rounding] : {std::pair{DType::f16, kHalfRounding}, std::pair{DType::bf16, kBFloat16Rounding}}) {
    const LstmWeights half = in(dtype);
    const LstmWeights wide{half.input.to(DType::f64), half.hidden.to(DType::f64), half.input_bias.to(DType::f64),
                           half.hidden_bias.to(DType::f64)};
    const LstmResult result = lstm(x.to(dtype), half);
    CHECK(result.y.dtype() == dtype);
    CHECK(result.state.cell.dtype() == DType::f32);
    CHECK(max_difference(result.y, lstm(x.to(dtype).to(DType::f64), wide).y) <= rounding);
  }
  {
    const AutocastGuard guard(DType::bf16);
    CHECK(max_difference(lstm(x.to(DType::f32), in(DType::f32)).y, lstm(x, weights).y) <= kFloatSum);
    CHECK(lstm(x.to(DType::bf16), in(DType::f32)).y.dtype() == DType::f32);
  }
  const LstmState state = {random_f64({2, 8}), random_f64({2, 8}, 2)};
  const LstmResult none = lstm(x.narrow(1, 0, 0), weights, state);
  CHECK(none.y.shape() == Shape{2, 0, 8});
  CHECK(max_difference(none.state.cell, state.cell) == 0);
  CHECK(lstm(x.narrow(0, 0, 0), weights).y.shape() == Shape{0, 9, 8});
}

TEST_CASE("lstm: errors") {
  const LstmWeights weights = weights_of(3, 2);
  const Tensor x = random_f64({1, 4, 3});
  CHECK(error_of<ShapeError>([&] { return lstm(random_f64({4, 3}), weights).y; }) == "lstm: expected x (N, L, C), got (4, 3)");
  CHECK(error_of<ShapeError>([&] {
          return lstm(random_f64({1, 4, 5}), weights).y;
        }) == "lstm: expected weight_ih (8, 5), got (8, 3)");
  CHECK(error_of<ShapeError>([&] {
          return lstm(x, {weights.input, random_f64({6, 2})}).y;
        }) == "lstm: expected weight_hh (8, 2), got (6, 2)");
  CHECK(error_of<ShapeError>([&] {
          return lstm(x, {weights.input, weights.hidden, random_f64({4})}).y;
        }) == "lstm: expected bias_ih (8,), got (4,)");
  CHECK(error_of<ShapeError>([&] {
          return lstm(x, weights, {random_f64({2, 2}), {}}).y;
        }) == "lstm: expected the hidden state (1, 2), got (2, 2)");
  CHECK(error_of<DTypeError>([&] { return lstm(x.to(DType::f32), weights).y; }) ==
        "lstm: expected tensors of one dtype, got f32 and f64");
  CHECK(error_of<Error>([&] { return lstm(x, {weights.input, {}}).y; }) == "lstm: weight_hh is undefined");
}
