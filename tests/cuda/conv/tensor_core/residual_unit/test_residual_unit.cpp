#include "cuda/conv/tensor_core/residual_unit/residual_unit.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "conv/length_invariant.hpp"
#include "layers/activations.hpp"
#include "layers/containers/branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/fused.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "unit_operands.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("residual unit: sums of small integers are exact") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, K, D, L, N;
  };
  const std::vector<Case> cases{{32, 3, 1, 504, 140},
                                {32, 11, 5, 1000, 70},
                                {32, 7, 3, 8, 140},
                                {64, 3, 5, 248, 140},
                                {64, 7, 1, 512, 70},
                                {64, 11, 5, 1480, 30},
                                {128, 3, 3, 256, 140},
                                {128, 7, 5, 744, 50},
                                {128, 11, 5, 480, 70},
                                {64, 1, 1, 264, 140},
                                {128, 11, 1, 2000, 20},
                                {32, 5, 2, 4096, 20},
                                // Several blocks for a thread block; one thread block on an SM.
                                {32, 3, 5, 5000, 60},
                                {64, 3, 3, 2000, 80},
                                {128, 3, 1, 1000, 80},
                                {64, 7, 13, 1000, 40}};
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Case& c : thinned(cases)) {
      const ResidualUnit unit{
          .N = c.N, .C = c.C, .L = c.L, .K = {c.K, c.K}, .D = {c.D, 1}, .slope = {kSlope, kSlope}, .dtype = dtype};
      CAPTURE(dtype);
      CAPTURE(c.C);
      CAPTURE(c.K);
      CAPTURE(c.D);
      CAPTURE(c.L);
      check_exact(unit);
    }
}

TEST_CASE("residual unit: an average with other numbers has the bits of average_of()") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, K, L, N;
  };
  const std::vector<Case> cases{{32, 3, 504, 140}, {32, 11, 1000, 70},  {64, 3, 5000, 20}, {64, 11, 248, 140},
                                {128, 3, 744, 50}, {128, 11, 2000, 20}, {32, 7, 8, 140}};
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Case& c : thinned(cases)) {
      CAPTURE(dtype);
      CAPTURE(c.C);
      CAPTURE(c.K);
      CAPTURE(c.L);
      check_averages({.N = c.N, .C = c.C, .L = c.L, .K = {c.K, c.K}, .D = {3, 1}, .slope = {kSlope, kSlope}, .dtype = dtype});
    }
}

// The units of DAC and Oobleck.
TEST_CASE(
    "residual unit: sums of small integers are exact with Snake that changes nothing and a second convolution of one tap") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, D, L, N;
  };
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const Case& c : thinned(std::vector<Case>{{32, 9, 2000, 20},
                                                   {64, 3, 264, 140},
                                                   {64, 9, 3000, 3},
                                                   {96, 1, 8, 3},
                                                   {96, 3, 248, 140},
                                                   {96, 9, 256, 70},
                                                   {96, 1, 5000, 20},
                                                   {128, 9, 2000, 20},
                                                   {128, 3, 1000, 80},
                                                   {192, 1, 8, 3},
                                                   {192, 1, 136, 140},
                                                   {192, 3, 1000, 40},
                                                   {192, 9, 128, 70},
                                                   {192, 9, 4000, 10}})) {
      const ResidualUnit unit{.N = c.N, .C = c.C, .L = c.L, .K = {7, 1}, .D = {c.D, 1}, .is_snake = true, .dtype = dtype};
      CAPTURE(dtype);
      CAPTURE(c.C);
      CAPTURE(c.D);
      CAPTURE(c.L);
      check_exact(unit);
    }
}

TEST_CASE("residual unit: with Snake random numbers are as near to f64 as the steps, with the same bits every time") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t C : {32, 64, 96, 128, 192})
      for (const double largest : {1.0, 200.0}) {  // of x: beyond 64 the standard library's sine is used
        const ResidualUnit unit{
            .N = is_reduced() ? 1 : 6, .C = C, .L = 2048, .K = {7, 1}, .D = {3, 1}, .is_snake = true, .dtype = dtype};
        UnitOperands operands = random_operands(unit);
        operands.x = operands.x * largest;
        CAPTURE(dtype);
        CAPTURE(C);
        CAPTURE(largest);
        const Tensor y = computed(unit, operands), exact = in_steps(unit, operands, DType::f64);
        REQUIRE(y.defined());
        CHECK(max_difference(y, exact) <= 1.5 * max_difference(in_steps(unit, operands, dtype), exact));
        const std::vector<double> first = f64_values(y);
        for (int run = 0; run < (is_reduced() ? 1 : 10); ++run) CHECK(f64_values(computed(unit, operands)) == first);
      }
}

TEST_CASE("residual unit: Snake with beta zero is NaN or infinite, as in steps") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const std::int64_t C : {96, 192}) {
    const ResidualUnit unit{.N = 2, .C = C, .L = 512, .K = {1, 1}, .is_snake = true, .dtype = DType::f16};
    check_beta_zero(unit, random_operands(unit));
  }
}

TEST_CASE("residual unit: convolutions of different sizes, the second one dilated") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const std::int64_t C : {32, 64, 128}) {
    const ResidualUnit unit{
        .N = 70, .C = C, .L = 600, .K = {7, 3}, .D = {1, 4}, .slope = {kSlope, kSlope}, .dtype = DType::f16};
    const UnitOperands operands = integer_operands(unit, 8, true);
    CAPTURE(C);
    CHECK(max_difference(computed(unit, operands), in_steps(unit, operands, DType::f64)) == 0);
  }
}

TEST_CASE("residual unit: ReLU, no activation, and slopes that are negative or above 1") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const std::array<double, 2>& slopes : std::vector<std::array<double, 2>>{{0, 0}, {1, 1}, {2, -1}, {0.5, 0}})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const ResidualUnit unit{.N = 70, .C = 32, .L = 600, .K = {3, 3}, .D = {2, 1}, .slope = slopes, .dtype = dtype};
      const UnitOperands operands = integer_operands(unit, 3, true);
      CAPTURE(slopes[0]);
      CAPTURE(slopes[1]);
      CAPTURE(dtype);
      CHECK(max_difference(computed(unit, operands), in_steps(unit, operands, DType::f64)) == 0);
    }
}

TEST_CASE("residual unit: ReLU makes zeros of negative infinity") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const ResidualUnit unit{.N = 70, .C = 64, .L = 504, .K = {3, 3}, .D = {1, 1}, .slope = {0, 0}, .dtype = DType::f16};
  check_relu_of_infinity(unit);
}

TEST_CASE("residual unit: random numbers are as near to f64 as the steps, with the same bits every time") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t C : {32, 64, 128})
      for (const std::int64_t K : {3, 11}) {
        const std::int64_t fewest = C == 128 && K == 11 ? 10 : 2;  // the steps take what fills less than half of the GPU
        const ResidualUnit unit{.N = is_reduced() ? fewest : 24,
                                .C = C,
                                .L = 2048,
                                .K = {K, K},
                                .D = {5, 1},
                                .slope = {kSlope, kSlope},
                                .dtype = dtype};
        const UnitOperands operands = random_operands(unit);
        CAPTURE(dtype);
        CAPTURE(C);
        CAPTURE(K);
        const Tensor y = computed(unit, operands), exact = in_steps(unit, operands, DType::f64);
        REQUIRE(y.defined());
        CHECK(max_difference(y, exact) <= 1.5 * max_difference(in_steps(unit, operands, dtype), exact));
        const std::vector<double> first = f64_values(y);
        for (int run = 0; run < (is_reduced() ? 1 : 20); ++run) CHECK(f64_values(computed(unit, operands)) == first);
      }
}

TEST_CASE("residual unit: NaN and infinity reach what reads them, and nothing else, nor the next call") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const ResidualUnit unit{
      .N = 140, .C = 64, .L = 504, .K = {3, 3}, .D = {5, 1}, .slope = {kSlope, kSlope}, .dtype = DType::f16};
  UnitOperands operands = random_operands(unit);
  const std::vector<double> clean = f64_values(computed(unit, operands));
  std::vector<double> x = operands.x.to_vector<double>();
  const std::int64_t at = 250;  // of sample 7, at the edge of two blocks
  x[static_cast<std::size_t>((7 * 64 + 3) * 504 + at)] = std::numeric_limits<double>::quiet_NaN();
  UnitOperands spoilt = operands;
  spoilt.x = Tensor::from_vector(x, operands.x.shape());
  const std::vector<double> y = f64_values(computed(unit, spoilt));
  for (std::size_t i = 0; i < y.size(); ++i) {
    const auto l = static_cast<std::int64_t>(i % 504), sample = static_cast<std::int64_t>(i / 504 / 64);
    // Three taps of 5, then three of 1: -6 to -4, -1 to 1, 4 to 6.
    const std::int64_t d = std::abs(l - at);
    const bool is_reached = sample == 7 && (d <= 1 || (d >= 4 && d <= 6));
    if (std::isnan(y[i]) != is_reached || (!is_reached && y[i] != clean[i])) {
      FAIL_CHECK("sample ", sample, ", position ", l, ": ", y[i]);
      break;
    }
  }
  CHECK(f64_values(computed(unit, operands)) == clean);
}

TEST_CASE("residual unit: residual_unit() and Residual use it, a guard of the length does not") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const DeviceGuard on_gpu(Device::cuda(0));
  const NoGradGuard no_grad;
  const ResidualUnit unit{.N = 40, .C = 32, .L = 2000, .K = {7, 7}, .D = {3, 1}, .slope = {0.1, 0.1}, .dtype = DType::bf16};
  Residual layers(
      {.name = ""}, LeakyReLU(0.1),
      Conv1d({.in_channels = 32, .out_channels = 32, .kernel_size = 7, .padding = 9, .dilation = 3, .dtype = DType::bf16}),
      LeakyReLU(0.1), Conv1d({.in_channels = 32, .out_channels = 32, .kernel_size = 7, .padding = 3, .dtype = DType::bf16}));
  const std::vector<Tensor> p = layers.parameters();
  REQUIRE(p.size() == 4);
  const Tensor x = random_f64({40, 32, 2000}, 1).to(DType::bf16).to(Device::cuda(0)), out = Tensor::empty_like(x);
  REQUIRE(backend_of(x.device()).residual_unit(unit, x, {{{p[0], p[1]}, {p[2], p[3]}}}, {}, out));
  const std::vector<double> fused = f64_values(out);
  CHECK(f64_values(layers(x)) == fused);
  const UnitConv1d first{p[0], p[1], 3, {Activation::leaky_relu, 0.1}}, second{p[2], p[3], 1, {Activation::leaky_relu, 0.1}};
  CHECK(f64_values(residual_unit(x, first, second)) == fused);
  const LengthInvariantGuard guard;
  CHECK_FALSE(backend_of(x.device()).residual_unit(unit, x, {{{p[0], p[1]}, {p[2], p[3]}}}, {}, out));
}

TEST_CASE("residual unit: the last units of branches average, with the bits of a pass of its own") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const DeviceGuard on_gpu(Device::cuda(0));
  const NoGradGuard no_grad;
  const auto unit = [](std::int64_t kernel, std::int64_t dilation) {
    const auto conv = [&](std::int64_t d) {
      return Conv1d({.in_channels = 32,
                     .out_channels = 32,
                     .kernel_size = kernel,
                     .padding = (kernel - 1) / 2 * d,
                     .dilation = d,
                     .dtype = DType::f16});
    };
    return Residual({.name = ""}, LeakyReLU(0.1), conv(dilation), LeakyReLU(0.1), conv(1));
  };
  const auto branch = [&](std::int64_t kernel) { return std::make_shared<Sequential>(unit(kernel, 1), unit(kernel, 3)); };
  const std::vector<std::shared_ptr<Module>> modules{branch(3), branch(7), branch(11)};
  const Tensor x = random_f64({140, 32, 2000}, 1).to(DType::f16).to(Device::cuda(0));  // too large for concurrent branches
  std::vector<Tensor> alone;
  for (const auto& module : modules) alone.push_back((*module)(x));
  const layers::Averaged next = layers::forward_averaged(*modules[1], x, {alone[0], 1});
  CHECK(next.is_of_kernel);
  CHECK(f64_values(next.y) == f64_values(add(alone[0], alone[1])));
  const auto check = [&](layers::BranchSum kind, double divisor, const ConvOutputOptions& output) {
    CHECK(f64_values(layers::forward_branches("net", modules, x, kind, output)) ==
          f64_values(average_of(alone, divisor, output.activation, output.slope)));
  };
  check(layers::BranchSum::mean, 3, {});
  check(layers::BranchSum::mean, 3, {Activation::leaky_relu, 0.1});
  check(layers::BranchSum::mean, 3, {Activation::relu});
  check(layers::BranchSum::plain, 1, {});
  const UnitConv1d conv{Tensor::zeros({32, 32, 3}, {.dtype = DType::f16}), {}, 1, {Activation::leaky_relu, 0.1}};
  CHECK(f64_values(residual_unit(x, conv, conv, 1, {alone[0], 2})) == f64_values(average_of(std::array{alone[0], x}, 2)));
  CHECK(f64_values(residual_unit(x, conv, conv, 1, {alone[0], 6})) == f64_values(average_of(std::array{alone[0], x}, 6)));
}

TEST_CASE("residual unit: a recorded graph follows new weights") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const DeviceGuard on_gpu(Device::cuda(0));
  const NoGradGuard no_grad;
  const auto make = [&](const Shape& shape, std::uint64_t seed) {
    return (random_f64(shape, seed) * 0.1).to(DType::f16).to(Device::cuda(0));
  };
  const Tensor x = make({140, 64, 256}, 1), b = make({64}, 2);
  Tensor w1 = make({64, 64, 3}, 3), w2 = make({64, 64, 3}, 4), y;
  const auto run = [&] { return residual_unit(x, {w1, b, 1, {}}, {w2, b, 1, {}}); };
  (void)run();
  cuda::Graph graph = cuda::capture([&] { y = run(); }, 0);
  graph.replay();
  CHECK(f64_values(y) == f64_values(run()));
  w1.copy_(make({64, 64, 3}, 5));
  graph.replay();
  CHECK(f64_values(y) == f64_values(run()));
}
