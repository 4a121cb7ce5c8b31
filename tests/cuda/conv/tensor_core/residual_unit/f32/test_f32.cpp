// Residual units of f32 to the accuracy of tf32 and of f32.

#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "f32_units.hpp"
#include "layers/activations.hpp"
#include "layers/containers/branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "ops/activations.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

ResidualUnit unit_of(Precision precision, std::int64_t N, std::int64_t C, std::int64_t L, std::int64_t K, std::int64_t D,
                     bool is_snake = false) {
  return {.N = N,
          .C = C,
          .L = L,
          .K = {K, is_snake ? 1 : K},
          .D = {D, 1},
          .slope = {kSlope, kSlope},
          .is_snake = is_snake,
          .dtype = DType::f32,
          .precision = precision};
}

/// Whether there is a kernel for the unit.
bool is_offered(Precision precision, std::int64_t C, bool is_snake) {
  return C % 96 != 0 || (is_snake && precision == Precision::tf32);
}

}  // namespace

TEST_CASE("residual unit of f32: sums of small integers are exact") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, K, D, L, N;
    bool is_snake;
  };
  const std::vector<Case> cases{{32, 3, 1, 504, 140, false},  {32, 11, 5, 1000, 70, false}, {32, 7, 3, 8, 140, false},
                                {64, 3, 5, 248, 140, false},  {64, 7, 1, 512, 70, false},   {64, 11, 5, 1480, 30, false},
                                {128, 3, 3, 256, 140, false}, {128, 7, 5, 744, 50, false},  {128, 11, 5, 480, 70, false},
                                {64, 1, 1, 264, 140, false},  {32, 3, 5, 5000, 60, false},  {64, 3, 3, 2000, 80, false},
                                {128, 3, 1, 1000, 80, false}, {32, 7, 9, 2000, 20, true},   {64, 7, 9, 3000, 3, true},
                                {96, 7, 1, 8, 3, true},       {96, 7, 3, 248, 140, true},   {96, 7, 9, 5000, 20, true},
                                {128, 7, 9, 2000, 20, true},  {192, 7, 1, 136, 140, true},  {192, 7, 9, 4000, 10, true}};
  for (const Case& c : thinned(cases))
    for (const Precision precision : kPrecisions) {
      if (!is_offered(precision, c.C, c.is_snake)) continue;
      CAPTURE(precision);
      CAPTURE(c.C);
      CAPTURE(c.K);
      CAPTURE(c.D);
      CAPTURE(c.L);
      CAPTURE(c.is_snake);
      check_exact(unit_of(precision, c.N, c.C, c.L, c.K, c.D, c.is_snake));
    }
}

TEST_CASE("residual unit of f32: fp32 keeps integers of 16 bits") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const std::int64_t C : {32, 64, 128})
    for (const double outlier : {0.0, 1e30}) {  // with it the block is marked
      const ResidualUnit unit = unit_of(Precision::fp32, 3, C, 1000, 7, 5);
      UnitOperands operands = integer_operands(unit, 4, true);
      std::vector<double> x = uniform_f64(operands.x.shape(), -0x1p15, 0x1p15, 9).to_vector<double>();
      for (double& value : x) value = 2 * std::round(value);
      if (outlier != 0) x[0] = outlier;
      operands.x = Tensor::from_vector(x, operands.x.shape());
      const std::vector<double> got = f64_values(computed(unit, operands)),
                                exact = f64_values(in_steps(unit, operands, DType::f64));
      CAPTURE(C);
      CAPTURE(outlier);
      // Sums of larger numbers are those that read the outlier.
      for (std::size_t i = 0; i < got.size(); ++i)
        if (std::abs(exact[i]) < 0x1p24 && got[i] != exact[i]) {
          FAIL_CHECK("at ", i, ": ", got[i], " instead of ", exact[i]);
          break;
        }
    }
}

TEST_CASE("residual unit of f32: random numbers are within the precision's error, with the same bits every time") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions)
    for (const bool is_snake : {false, true})
      for (const std::int64_t C : {32, 64, 96, 128, 192}) {
        if (!is_offered(precision, C, is_snake)) continue;
        const ResidualUnit unit = unit_of(precision, 4, C, 1200, 7, 3, is_snake);
        const UnitOperands operands = random_operands(unit);
        CAPTURE(precision);
        CAPTURE(C);
        CAPTURE(is_snake);
        const double error = worst(unit, operands);
        MESSAGE(precision, ", ", C, " channels", is_snake ? ", Snake" : "", ": ", error, " of what is allowed");
        CHECK(error <= 1);
        const std::vector<double> first = f64_values(computed(unit, operands));
        for (int run = 0; run < (is_reduced() ? 1 : 20); ++run) CHECK(f64_values(computed(unit, operands)) == first);
      }
}

TEST_CASE("residual unit of f32: convolutions of different sizes, slopes of any kind") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions)
    for (const std::int64_t C : {32, 64, 128})
      for (const std::array<double, 2>& slopes : std::vector<std::array<double, 2>>{{0, 0}, {1, 1}, {2, -1}, {0.5, 0}}) {
        ResidualUnit unit = unit_of(precision, 20, C, 600, 7, 1);
        unit.K[1] = 3, unit.D[1] = 4, unit.slope = slopes;
        const UnitOperands operands = integer_operands(unit, 3, true);
        CAPTURE(precision);
        CAPTURE(C);
        CAPTURE(slopes[0]);
        CHECK(max_difference(computed(unit, operands), in_steps(unit, operands, DType::f64)) == 0);
      }
}

TEST_CASE("residual unit of f32: numbers of very different magnitudes are as accurate as others") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  std::mt19937_64 random(3);
  const auto log_uniform = [&](double digits) {
    return std::pow(10.0, -std::uniform_real_distribution<double>(0, digits)(random));
  };
  struct Kind {
    std::string name;
    std::function<void(UnitOperands&)> change;
  };
  const auto scaled = [&](auto factor) { return [=](UnitOperands& operands) { scale_source(operands, factor); }; };
  const auto weights_by = [](std::size_t conv, bool by_output, double digits) {
    return [=](UnitOperands& operands) {
      Tensor& w = operands.weights[conv];
      std::vector<double> values = w.to_vector<double>();
      const std::int64_t C = w.size(0), K = w.size(2);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i), channel = by_output ? at / K / C : at / K % C;
        values[i] *= std::pow(10.0, -digits * static_cast<double>(channel) / static_cast<double>(C));
      }
      w = Tensor::from_vector(values, w.shape());
    };
  };
  using I = std::int64_t;
  const std::vector<Kind> kinds{
      {"log-uniform to 1e-30", scaled([&](I, I, I) { return log_uniform(30); })},
      {"log-uniform to 1e-6", scaled([&](I, I, I) { return log_uniform(6); })},
      {"half of each row at 1e-4", scaled([](I, I, I l) { return l < 500 ? 1.0 : 1e-4; })},
      {"half of each row at 1e-10", scaled([](I, I, I l) { return l < 500 ? 1.0 : 1e-10; })},
      {"the first half of each row at 1e-10", scaled([](I, I, I l) { return l < 500 ? 1e-10 : 1.0; })},
      {"the first half of each row zero", scaled([](I, I, I l) { return l < 500 ? 0.0 : 1e-10; })},
      {"channels at 1e-12", scaled([](I, I c, I) { return c % 2 == 0 ? 1.0 : 1e-12; })},
      {"one channel at 1e12", scaled([](I, I c, I) { return c == 5 ? 1e12 : 1.0; })},
      {"loud every 64", scaled([](I, I, I l) { return l % 64 == 0 ? 1e9 : 1.0; })},
      {"an outlier", scaled([](I n, I c, I l) { return n == 1 && c == 3 && l == 700 ? 1e30 : 1.0; })},
      {"samples at 1e-30", scaled([](I n, I, I) { return n == 0 ? 1.0 : 1e-30; })},
      {"all at 1e-30", scaled([](I, I, I) { return 1e-30; })},
      {"all at 1e30", scaled([](I, I, I) { return 1e30; })},
      {"subnormal", scaled([](I, I, I) { return 1e-39; })},
      {"below the least scale", scaled([](I, I, I) { return 1e-33; })},
      {"the first half of each row subnormal", scaled([](I, I, I l) { return l < 500 ? 1e-40 : 1.0; })},
      {"the second half of each row subnormal", scaled([](I, I, I l) { return l < 500 ? 1.0 : 1e-40; })},
      {"the first weights by output", weights_by(0, true, 20)},
      {"the first weights by input", weights_by(0, false, 20)},
      {"the second weights by output", weights_by(1, true, 20)},
      {"the second weights by input", weights_by(1, false, 20)},
      {"small first weights", [](UnitOperands& o) { o.weights[0] = o.weights[0] * 1e-33; }},
      {"large second weights", [](UnitOperands& o) { o.weights[1] = o.weights[1] * 1e33; }},
      {"subnormal first weights", [](UnitOperands& o) { o.weights[0] = o.weights[0] * 1e-39; }},
      {"hardly any first weights", [](UnitOperands& o) { o.weights[0] = o.weights[0] * 1e-43; }},
  };
  for (const Kind& kind : thinned(kinds))
    for (const Precision precision : kPrecisions)
      for (const I C : {32, 64, 96, 128, 192}) {
        if (!is_offered(precision, C, C % 96 == 0)) continue;
        const ResidualUnit unit = unit_of(precision, 2, C, 1000, 3, 5, C % 96 == 0);
        UnitOperands operands = random_operands(unit);
        for (Tensor& bias : operands.biases) bias = {};
        kind.change(operands);
        CAPTURE(kind.name);
        CAPTURE(precision);
        CAPTURE(C);
        CHECK(worst(unit, operands) <= 1);
      }
}

TEST_CASE("residual unit of f32: Snake far from zero, and with beta zero") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions)
    for (const std::int64_t C : {32, 96, 192})
      for (const double largest : {200.0, 1e9}) {
        if (!is_offered(precision, C, true)) continue;
        const ResidualUnit unit = unit_of(precision, 2, C, 512, 7, 1, true);
        UnitOperands operands = random_operands(unit);
        operands.x = operands.x * largest;
        CAPTURE(precision);
        CAPTURE(C);
        CAPTURE(largest);
        // The sine of numbers that are rounded at this magnitude says little.
        if (largest < 1e6) CHECK(worst(unit, operands) <= 1);
        check_beta_zero(unit, operands);
      }
}

TEST_CASE("residual unit of f32: NaN and infinity reach what reads them, and nothing else, nor the next call") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const UnitOperands operands = random_operands(unit_of(Precision::fp32, 140, 64, 504, 3, 5));
  for (const Precision precision : kPrecisions) {
    const ResidualUnit unit = unit_of(precision, 140, 64, 504, 3, 5);
    const std::vector<double> clean = f64_values(computed(unit, operands));
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      std::vector<double> x = operands.x.to_vector<double>();
      const std::int64_t at = 250;  // of sample 7, at the edge of two blocks
      x[static_cast<std::size_t>((7 * 64 + 3) * 504 + at)] = bad;
      UnitOperands spoilt = operands;
      spoilt.x = Tensor::from_vector(x, operands.x.shape());
      const std::vector<double> y = f64_values(computed(unit, spoilt));
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto l = static_cast<std::int64_t>(i % 504), sample = static_cast<std::int64_t>(i / 504 / 64);
        // Three taps of 5, then three of 1: -6 to -4, -1 to 1, 4 to 6.
        const std::int64_t d = std::abs(l - at);
        const bool is_reached = sample == 7 && (d <= 1 || (d >= 4 && d <= 6));
        // Blocks with an infinity are computed by another kernel.
        if (std::isfinite(y[i]) == is_reached ||
            (!is_reached && std::abs(y[i] - clean[i]) > (sample == 7 ? (precision == Precision::tf32 ? 0.02 : 1e-5) : 0))) {
          FAIL_CHECK(bad, " in sample ", sample, ", position ", l, ": ", y[i], " instead of ", clean[i]);
          break;
        }
      }
      CHECK(f64_values(computed(unit, operands)) == clean);
    }
  }
}

// Also of blocks that a second kernel computes again.
TEST_CASE("residual unit of f32: an average with other numbers has the bits of average_of()") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, K, L, N;
  };
  const auto quieten = [](std::vector<double>& x) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i % 3000 < 1500 ? 1.0 : i % 2 == 0 ? 1e-9 : 1e-30;
  };
  for (const Precision precision : kPrecisions)
    for (const Case& c : thinned(std::vector<Case>{{32, 3, 504, 140},
                                                   {32, 11, 1000, 70},
                                                   {64, 3, 5000, 20},
                                                   {64, 11, 248, 140},
                                                   {128, 3, 744, 50},
                                                   {128, 11, 2000, 20}}))
      for (const bool is_quiet : {false, true}) {
        CAPTURE(precision);
        CAPTURE(c.C);
        CAPTURE(c.K);
        CAPTURE(c.L);
        CAPTURE(is_quiet);
        check_averages(unit_of(precision, c.N, c.C, c.L, c.K, 3),
                       is_quiet ? quieten : std::function<void(std::vector<double>&)>());
      }
}

// Some blocks of the first branch's sum are replaced by the second kernel.
TEST_CASE(
    "residual unit of f32: branches of large tensors add in halves of a batch, with the same bits in three tensors of memory") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  if (is_reduced()) SKIP_TEST("takes gigabytes");
  const DeviceGuard on_gpu(Device::cuda(0));
  const NoGradGuard no_grad;
  const auto branch = [](std::int64_t kernel) {
    const auto conv = [&](std::int64_t dilation) {
      return Conv1d({.in_channels = 32,
                     .out_channels = 32,
                     .kernel_size = kernel,
                     .padding = kernel / 2 * dilation,
                     .dilation = dilation});
    };
    const auto unit = [&](std::int64_t d) { return Residual(LeakyReLU(0.1), conv(d), LeakyReLU(0.1), conv(1)); };
    return std::make_shared<Sequential>(unit(1), unit(3), unit(5));
  };
  const std::vector<std::shared_ptr<Module>> modules{branch(3), branch(7), branch(11)};
  Tensor x = Tensor::randn({2, 32, 1200000});
  x.narrow(2, 100000, 100000) *= 1e-9;
  std::vector<Tensor> alone;
  for (const auto& module : modules) alone.push_back((*module)(x).cpu());
  const Tensor apart = average_of(alone, 3, Activation::leaky_relu, 0.1);
  alone.clear();
  Allocator& allocator = backend_of(x.device()).allocator();
  allocator.reset_peak();
  const std::size_t before = allocator.stats().live_bytes;
  const Tensor y = layers::forward_branches("net", modules, std::move(x), layers::BranchSum::mean,
                                            {.activation = Activation::leaky_relu, .slope = 0.1});
  const std::size_t of_tensor = y.storage().bytes();
  CHECK(allocator.stats().peak_bytes - before < of_tensor * 9 / 4);  // and x
  CHECK(f64_values(y) == f64_values(apart));
}

TEST_CASE("residual unit of f32: ReLU makes zeros of negative infinity") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions)
    for (const std::int64_t C : {32, 64}) {
      ResidualUnit unit = unit_of(precision, 70, C, 504, 3, 1);
      unit.slope = {0, 0};
      check_relu_of_infinity(unit);
    }
}

TEST_CASE("residual unit of f32: residual_unit() uses it but in ieee, and a recorded graph follows new weights") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const DeviceGuard on_gpu(Device::cuda(0));
  const NoGradGuard no_grad;
  const auto make = [&](const Shape& shape, std::uint64_t seed) {
    return (random_f64(shape, seed) * 0.1).to(DType::f32).to(Device::cuda(0));
  };
  const Tensor x = make({140, 64, 256}, 1), b = make({64}, 2);
  Tensor w1 = make({64, 64, 3}, 3), w2 = make({64, 64, 3}, 4), y;
  const auto run = [&] { return residual_unit(x, {w1, b, 1, {}}, {w2, b, 1, {}}); };
  const std::vector<double> in_steps = [&] {
    const PrecisionGuard guard(Precision::ieee);
    return f64_values(run());
  }();
  for (const Precision precision : kPrecisions) {
    const PrecisionGuard guard(precision);
    const Tensor out = Tensor::empty_like(x);
    ResidualUnit unit = unit_of(precision, 140, 64, 256, 3, 1);
    unit.slope = {1, 1};
    REQUIRE(backend_of(x.device()).residual_unit(unit, x, {{{w1, b}, {w2, b}}}, {}, out));
    CHECK(f64_values(run()) == f64_values(out));
    CHECK(f64_values(out) != in_steps);
  }
  cuda::Graph graph = cuda::capture([&] { y = run(); }, 0);
  graph.replay();
  CHECK(f64_values(y) == f64_values(run()));
  w1.copy_(make({64, 64, 3}, 5));
  graph.replay();
  CHECK(f64_values(y) == f64_values(run()));
}
