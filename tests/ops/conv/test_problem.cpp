#include "ops/conv/problem.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const Shape kX = {4, 16, 100};
const Shape kW = {16, 8, 3};

std::string transposed_error(const Shape& x, const Shape& w, const ConvTranspose1dOptions& options, const Tensor& bias = {}) {
  return error_of<ShapeError>([&] { return ops::conv_transpose1d_problem(random_f64(x), random_f64(w), bias, options); });
}

std::string conv_error(const Shape& x, const Shape& w, const Conv1dOptions& options, const Tensor& bias = {}) {
  return error_of<ShapeError>([&] { return ops::conv1d_problem(random_f64(x), random_f64(w), bias, options); });
}

}  // namespace

TEST_CASE("conv_transpose1d: every field, length as in docs/notation.md") {
  const ConvTranspose1dOptions options = {.stride = 4, .padding = {2, 1}, .output_padding = 3, .dilation = 2, .groups = 2};
  const ConvProblem problem = ops::conv_transpose1d_problem(random_f64({3, 4, 10}), random_f64({4, 5, 3}), {}, options);
  CHECK(problem.N == 3);
  CHECK(problem.C_in == 4);
  CHECK(problem.C_out == 10);
  CHECK(problem.L_in == 10);
  CHECK(problem.L_out == 9 * 4 - 2 - 1 + 2 * 2 + 3 + 1);
  CHECK(problem.K == 3);
  CHECK(problem.S == 4);
  CHECK(problem.P_l == 2);
  CHECK(problem.P_r == 1);
  CHECK(problem.OP == 3);
  CHECK(problem.D == 2);
  CHECK(problem.G == 2);
  CHECK(problem.dtype == DType::f64);
}

TEST_CASE("conv1d: the same problem the other way round") {
  const Conv1dOptions options = {.stride = 3, .padding = {2, 1}, .dilation = 2, .groups = 2};
  const ConvProblem problem = ops::conv1d_problem(random_f64({3, 10, 12}), random_f64({4, 5, 3}), {}, options);
  CHECK(problem.N == 3);
  CHECK(problem.C_in == 4);
  CHECK(problem.C_out == 10);
  CHECK(problem.L_out == 12);
  CHECK(problem.L_in == (12 + 2 + 1 - 2 * 2 - 1) / 3 + 1);
  CHECK(problem.OP == (12 + 2 + 1 - 2 * 2 - 1) % 3);
  CHECK(conv_transpose1d_length(problem.L_in, 3, 3, 2, 1, problem.OP, 2) == 12);
}

TEST_CASE("an unbatched x is a batch of one") {
  CHECK(ops::conv_transpose1d_problem(random_f64({16, 5}), random_f64(kW), {}, {}).N == 1);
  CHECK(ops::conv1d_problem(random_f64({8, 5}), random_f64(kW), {}, {}).N == 1);
}

TEST_CASE("output_size picks the output padding, or names the range") {
  const auto padding_for = [](std::int64_t size) {
    const ConvTranspose1dOptions options = {.stride = 2, .padding = 1, .output_size = size};
    return ops::conv_transpose1d_problem(random_f64(kX), random_f64(kW), {}, options).OP;
  };
  CHECK(padding_for(199) == 0);
  CHECK(padding_for(200) == 1);
  CHECK(transposed_error(kX, kW, {.stride = 2, .padding = 1, .output_size = 201}) ==
        "conv_transpose1d: expected output_size in [199, 200], got 201");
  CHECK(transposed_error(kX, kW, {.stride = 2, .padding = 1, .output_size = 198}) ==
        "conv_transpose1d: expected output_size in [199, 200], got 198");
  CHECK(transposed_error(kX, kW, {.stride = 2, .output_padding = 1, .output_size = 201}) ==
        "conv_transpose1d: expected output_size or output_padding, got both (201 and 1)");
}

TEST_CASE("conv_transpose1d: wrong tensors") {
  CHECK(transposed_error({4, 8, 100}, kW, {}) == "conv_transpose1d: expected x (N, C_in=16, L_in), got (4, 8, 100)");
  CHECK(transposed_error({8, 100}, kW, {}) == "conv_transpose1d: expected x (C_in=16, L_in), got (8, 100)");
  CHECK(transposed_error({16}, kW, {}) == "conv_transpose1d: expected x (N, C_in=16, L_in) or (C_in=16, L_in), got (16,)");
  CHECK(transposed_error({4, 16, 0}, kW, {}) == "conv_transpose1d: expected x with L_in >= 1, got (4, 16, 0)");
  CHECK(transposed_error(kX, {16, 3}, {}) == "conv_transpose1d: expected weight (C_in, C_out/G, K), got (16, 3)");
  CHECK(transposed_error(kX, {16, 8, 0}, {}) == "conv_transpose1d: expected kernel size >= 1, got 0");
  CHECK(transposed_error(kX, {16, 0, 3}, {}) ==
        "conv_transpose1d: expected weight (C_in, C_out/G, K) with at least one channel, got (16, 0, 3)");
  CHECK(transposed_error(kX, kW, {}, random_f64({9})) == "conv_transpose1d: expected bias (C_out=8), got (9,)");
  CHECK(transposed_error(kX, kW, {}, random_f64({8, 1})) == "conv_transpose1d: expected bias (C_out=8), got (8, 1)");
}

TEST_CASE("conv_transpose1d: wrong hyper-parameters") {
  CHECK(transposed_error(kX, kW, {.groups = 0}) == "conv_transpose1d: expected groups >= 1, got 0");
  CHECK(transposed_error(kX, kW, {.groups = -2}) == "conv_transpose1d: expected groups >= 1, got -2");
  CHECK(transposed_error(kX, kW, {.groups = 3}) == "conv_transpose1d: expected groups to divide C_in=16, got 3");
  CHECK(transposed_error(kX, kW, {.stride = 0}) == "conv_transpose1d: expected stride >= 1, got 0");
  CHECK(transposed_error(kX, kW, {.stride = -1}) == "conv_transpose1d: expected stride >= 1, got -1");
  CHECK(transposed_error(kX, kW, {.dilation = 0}) == "conv_transpose1d: expected dilation >= 1, got 0");
  CHECK(transposed_error(kX, kW, {.padding = -1}) == "conv_transpose1d: expected padding >= 0, got -1");
  CHECK(transposed_error(kX, kW, {.padding = {0, -3}}) == "conv_transpose1d: expected padding >= 0, got -3");
  CHECK(transposed_error(kX, kW, {.stride = std::int64_t{1} << 40}) ==
        "conv_transpose1d: expected stride <= 1073741824, got 1099511627776");
  CHECK(transposed_error(kX, kW, {.padding = Padding::same()}) == "conv_transpose1d: expected a padding in numbers, got same");
  CHECK(transposed_error(kX, kW, {.stride = 2, .output_padding = 2}) ==
        "conv_transpose1d: expected 0 <= output_padding < max(S, D)=2, got 2");
  CHECK(transposed_error(kX, kW, {.output_padding = -1}) ==
        "conv_transpose1d: expected 0 <= output_padding < max(S, D)=1, got -1");
  CHECK_NOTHROW(static_cast<void>(
      ops::conv_transpose1d_problem(random_f64(kX), random_f64(kW), {}, {.stride = 2, .output_padding = 2, .dilation = 3})));
  CHECK(transposed_error({1, 16, 1}, kW, {.padding = 2}) ==
        "conv_transpose1d: expected an output length >= 1, got L_out=-1 from L_in=1 K=3 S=1 P_l=2 P_r=2 OP=0 D=1");
}

TEST_CASE("conv1d: wrong arguments") {
  CHECK(conv_error({4, 9, 100}, kW, {}) == "conv1d: expected x (N, C_in=8, L_in), got (4, 9, 100)");
  CHECK(conv_error({4, 8, 100}, kW, {.groups = 2}) == "conv1d: expected x (N, C_in=16, L_in), got (4, 8, 100)");
  CHECK(conv_error({4, 8, 100}, {16, 8}, {}) == "conv1d: expected weight (C_out, C_in/G, K), got (16, 8)");
  CHECK(conv_error({4, 8, 100}, {16, 8, 0}, {.padding = Padding::same()}) == "conv1d: expected kernel size >= 1, got 0");
  CHECK(conv_error({4, 8, 100}, kW, {.groups = 3}) == "conv1d: expected groups to divide C_out=16, got 3");
  CHECK(conv_error({4, 8, 100}, kW, {.groups = 0}) == "conv1d: expected groups >= 1, got 0");
  CHECK(conv_error({4, 8, 100}, kW, {.stride = 0}) == "conv1d: expected stride >= 1, got 0");
  CHECK(conv_error({4, 8, 100}, kW, {.padding = {-1, 0}}) == "conv1d: expected padding >= 0, got -1");
  CHECK(conv_error({4, 8, 100}, kW, {.dilation = -1}) == "conv1d: expected dilation >= 1, got -1");
  CHECK(conv_error({4, 8, 100}, kW, {}, random_f64({8})) == "conv1d: expected bias (C_out=16), got (8,)");
  CHECK(conv_error({4, 8, 100}, kW, {.stride = 2, .padding = Padding::same()}) ==
        "conv1d: expected stride 1 with padding same, got 2");
  CHECK(conv_error({4, 8, 3}, kW, {.padding = {1, 0}, .dilation = 2}) ==
        "conv1d: expected a kernel of at most L_in + P_l + P_r=4 positions, got D*(K - 1) + 1=5 (K=3 D=2)");
}

TEST_CASE("lengths that do not fit 64 bits") {
  constexpr std::int64_t kLong = (std::int64_t{1} << 62) + 1;
  const auto error = [](const auto& problem_of, const auto& options) {
    return error_of<ShapeError>([&] {
      return problem_of(Tensor::zeros({1, 1, 1}).expand({1, 1, kLong}), Tensor::zeros({1, 1, 3}), Tensor(), options);
    });
  };
  CHECK(error(ops::conv_transpose1d_problem, ConvTranspose1dOptions{.stride = 4}) ==
        "conv_transpose1d: expected x with L_in <= 1152921504606846976, got (1, 1, 4611686018427387905)");
  CHECK(error(ops::conv1d_problem, Conv1dOptions{.stride = 2, .padding = 1 << 30}) ==
        "conv1d: expected x with L_in <= 4611686018427387904, got (1, 1, 4611686018427387905)");
}

TEST_CASE("mixed devices") {
  const DeviceGuard host(Device::cpu());
  CHECK(error_of<DeviceError>([] { return ops::conv_transpose1d_problem(random_f64(kX), elsewhere(kW), {}, {}); }) ==
        "conv_transpose1d: expected tensors on one device, got cpu and cuda:0");
  CHECK(error_of<DeviceError>([] {
          return ops::conv1d_problem(random_f64({4, 8, 9}), random_f64(kW), elsewhere({16}), {});
        }) == "conv1d: expected tensors on one device, got cpu and cuda:0");
}

TEST_CASE("undefined tensors") {
  const Tensor x = random_f64(kX), w = random_f64(kW);
  CHECK(error_of<Error>([&] { return conv1d(x, {}); }) == "conv1d: weight is undefined");
  CHECK(error_of<Error>([&] { return conv1d({}, w); }) == "conv1d: x is undefined");
  CHECK(error_of<Error>([&] { return conv_transpose1d(x, {}); }) == "conv_transpose1d: weight is undefined");
  CHECK(error_of<Error>([&] { return conv_transpose1d({}, w); }) == "conv_transpose1d: x is undefined");
}

TEST_CASE("mixed and integer dtypes") {
  const Tensor x = random_f64(kX);
  const Tensor w = random_f64(kW);
  CHECK(error_of<DTypeError>([&] { return ops::conv_transpose1d_problem(x, w.to(DType::f32), {}, {}); }) ==
        "conv_transpose1d: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<DTypeError>([&] { return ops::conv_transpose1d_problem(x, w, Tensor::ones({8}), {}); }) ==
        "conv_transpose1d: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<DTypeError>([&] {
          return ops::conv1d_problem(Tensor::ones({1, 8, 9}, {.dtype = DType::i64}), w, {}, {});
        }) == "conv1d: expected a floating-point tensor, got i64");
}

TEST_CASE("same padding puts the odd one on the right") {
  CHECK(ops::resolve_padding("conv1d", Padding::same(), 4, 1, 1) == Padding(1, 2));
  CHECK(ops::resolve_padding("conv1d", Padding::same(), 3, 1, 2) == Padding(2, 2));
  CHECK(ops::resolve_padding("conv1d", {3, 4}, 3, 5, 2) == Padding(3, 4));
}
