// Residual units of f32 whose first convolution is depthwise.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "cuda/conv/tensor_core/residual_unit/f32/f32.hpp"
#include "f32_units.hpp"
#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "layers/conv1d.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

ResidualUnit unit_of(Precision precision, std::int64_t N, std::int64_t C, std::int64_t L, std::int64_t K, std::int64_t D) {
  return {.N = N,
          .C = C,
          .L = L,
          .K = {K, 1},
          .D = {D, 1},
          .is_depthwise = true,
          .is_snake = true,
          .dtype = DType::f32,
          .precision = precision};
}

}  // namespace

TEST_CASE("depthwise residual unit: tilings of 64 and 128 channels, and what they refuse") {
  cuda::DeviceProperties gpu;
  gpu.major = 9, gpu.sm_count = 132, gpu.shared_bytes_per_block = 232448;
  const auto tiling = [&](ResidualUnit unit) { return cuda::tensor_core::make_unit_tiling(unit, gpu); };
  for (const Precision precision : kPrecisions)
    for (const std::int64_t C : {64, 128})
      for (const std::int64_t D : {1, 3, 9}) {
        CAPTURE(precision);
        CAPTURE(C);
        CAPTURE(D);
        const auto of = tiling(unit_of(precision, 2, C, 1000, 7, D));
        REQUIRE(of.has_value());
        CHECK(of->blocks * of->tile >= 2 * 1000);
        CHECK(of->thread_blocks <= 132 * (C == 64 ? 2 : 1));
        CHECK(of->row_taps == 7);
        CHECK(of->taps[0] == 0);
        // What the taps of a block read is loaded.
        CHECK(of->tile + 6 * D <= of->pieces / (C / 8) * 32);
        CHECK(of->shared_bytes <= gpu.shared_bytes_per_block);
        CHECK(of->marked_shared_bytes <= gpu.shared_bytes_per_block);
      }
  ResidualUnit of_16_bits = unit_of(Precision::fp32, 2, 128, 1000, 7, 9);
  of_16_bits.dtype = DType::bf16;
  CHECK(tiling(of_16_bits).has_value());
  const ResidualUnit unit = unit_of(Precision::tf32, 1, 64, 1000, 7, 9);
  const auto refuses = [&](auto change) {
    ResidualUnit other = unit;
    change(other);
    return !tiling(other).has_value();
  };
  CHECK(refuses([](ResidualUnit& u) { u.D[0] = 11; }));
  CHECK(refuses([](ResidualUnit& u) { u.K[1] = 3; }));
  CHECK(refuses([](ResidualUnit& u) { u.C = 32; }));
  CHECK(refuses([](ResidualUnit& u) { u.L = 1001; }));
  CHECK(refuses([](ResidualUnit& u) { u.is_snake = false; }));
  CHECK(refuses([](ResidualUnit& u) { u.dtype = DType::f64; }));
  CHECK(refuses([](ResidualUnit& u) { u.scale = 2; }));
}

TEST_CASE("depthwise residual unit: sums of small integers are exact") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  struct Case {
    std::int64_t C, K, D, L, N;
  };
  const std::vector<Case> cases{{64, 7, 1, 8, 140},    {64, 7, 3, 248, 140}, {64, 7, 9, 3000, 30}, {64, 3, 5, 256, 20},
                                {64, 1, 1, 512, 20},   {64, 9, 8, 1000, 20}, {128, 7, 1, 8, 140},  {128, 7, 3, 744, 140},
                                {128, 7, 9, 3000, 30}, {128, 11, 5, 192, 20}};
  for (const Case& c : thinned(cases))
    for (const Precision precision : kPrecisions) {
      CAPTURE(precision);
      CAPTURE(c.C);
      CAPTURE(c.K);
      CAPTURE(c.D);
      CAPTURE(c.L);
      check_exact(unit_of(precision, c.N, c.C, c.L, c.K, c.D));
    }
}

TEST_CASE("depthwise residual unit: random numbers are within the precision's error, with the same bits every time") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions)
    for (const std::int64_t C : {64, 128})
      for (const std::int64_t D : {1, 9}) {
        const ResidualUnit unit = unit_of(precision, is_reduced() ? 1 : 40, C, 1200, 7, D);
        const UnitOperands operands = random_operands(unit);
        CAPTURE(precision);
        CAPTURE(C);
        CAPTURE(D);
        const double error = worst(unit, operands);
        MESSAGE(precision, ", ", C, " channels: ", error, " of what is allowed");
        CHECK(error <= 1);
        const std::vector<double> first = f64_values(computed(unit, operands));
        for (int run = 0; run < (is_reduced() ? 1 : 20); ++run) CHECK(f64_values(computed(unit, operands)) == first);
      }
}

TEST_CASE("depthwise residual unit: numbers of very different magnitudes are as accurate as others") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  using I = std::int64_t;
  struct Kind {
    std::string name;
    std::function<double(I, I, I)> factor;
  };
  const std::vector<Kind> kinds{
      {"powers of ten by position", [](I, I c, I l) { return std::pow(10.0, -static_cast<double>((l * 7 + c * 3) % 31)); }},
      {"half of each row at 1e-10", [](I, I, I l) { return l < 500 ? 1.0 : 1e-10; }},
      {"the first half of each row zero", [](I, I, I l) { return l < 500 ? 0.0 : 1e-10; }},
      {"channels at 1e-12", [](I, I c, I) { return c % 2 == 0 ? 1.0 : 1e-12; }},
      {"loud every 64", [](I, I, I l) { return l % 64 == 0 ? 1e3 : 1.0; }},
      {"samples at 1e-30", [](I n, I, I) { return n == 0 ? 1.0 : 1e-30; }},
      {"subnormal", [](I, I, I) { return 1e-39; }},
  };
  for (const Kind& kind : thinned(kinds))
    for (const Precision precision : kPrecisions)
      for (const I C : {64, 128}) {
        const ResidualUnit unit = unit_of(precision, 2, C, 1000, 7, 3);
        UnitOperands operands = random_operands(unit);
        for (Tensor& bias : operands.biases) bias = {};
        scale_source(operands, kind.factor);
        CAPTURE(kind.name);
        CAPTURE(precision);
        CAPTURE(C);
        CHECK(worst(unit, operands) <= 1);
      }
}

TEST_CASE("depthwise residual unit: Snake far from zero, and with beta zero") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions)
    for (const std::int64_t C : {64, 128}) {
      const ResidualUnit unit = unit_of(precision, 2, C, 512, 7, 1);
      UnitOperands operands = random_operands(unit);
      operands.x = operands.x * 200.0;
      CAPTURE(precision);
      CAPTURE(C);
      CHECK(worst(unit, operands) <= 1);
      check_beta_zero(unit, operands);
    }
}

TEST_CASE("depthwise residual unit: NaN and infinity reach what reads them, and nothing else") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  for (const Precision precision : kPrecisions) {
    const ResidualUnit unit = unit_of(precision, 40, 64, 1000, 7, 9);
    UnitOperands operands = random_operands(unit);
    const std::vector<double> clean = f64_values(computed(unit, operands));
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      std::vector<double> x = operands.x.to_vector<double>();
      const std::int64_t at = 250;  // of sample 7, near the edge of two blocks
      x[static_cast<std::size_t>((7 * 64 + 3) * 1000 + at)] = bad;
      UnitOperands spoilt = operands;
      spoilt.x = Tensor::from_vector(x, operands.x.shape());
      const std::vector<double> y = f64_values(computed(unit, spoilt));
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto l = static_cast<std::int64_t>(i % 1000), sample = static_cast<std::int64_t>(i / 1000 / 64);
        const std::int64_t distance = std::abs(l - at);
        const bool is_reached = sample == 7 && distance <= 27 && distance % 9 == 0;
        // Blocks with an infinity are computed by another kernel.
        if (std::isfinite(y[i]) == is_reached ||
            (!is_reached && std::abs(y[i] - clean[i]) > (sample == 7 ? (precision == Precision::tf32 ? 0.02 : 1e-5) : 0))) {
          FAIL_CHECK(bad, " in sample ", sample, ", position ", l, ": ", y[i], " instead of ", clean[i]);
          break;
        }
      }
    }
    CHECK(f64_values(computed(unit, operands)) == clean);
  }
}

TEST_CASE("depthwise residual unit: Residual uses it but in ieee, and a recorded graph follows new weights") {
  if (!has_kernel()) SKIP_TEST("no GPU with code for sm_90a");
  const DeviceGuard on_gpu(Device::cuda(0));
  const NoGradGuard no_grad;
  manual_seed(1);
  Residual net(Snake(64),
               Conv1d({.in_channels = 64, .out_channels = 64, .kernel_size = 7, .padding = 9, .dilation = 3, .groups = 64}),
               Snake(64), Conv1d({.in_channels = 64, .out_channels = 64, .kernel_size = 1}));
  const Tensor x = Tensor::randn({3, 64, 2000});
  const std::vector<double> in_steps = [&] {
    const PrecisionGuard guard(Precision::ieee);
    return f64_values(net(x));
  }();
  Tensor y = net(x);
  CHECK(f64_values(y) != in_steps);
  CHECK(max_difference(y.cpu(), Tensor::from_vector(in_steps, y.shape())) <= 1e-5);
  cuda::Graph graph = cuda::capture([&] { y = net(x); }, 0);
  graph.replay();
  CHECK(f64_values(y) == f64_values(net(x)));
  for (auto& [name, tensor] : net.named_parameters()) Tensor(tensor.detach()) *= 1.5;
  graph.replay();
  CHECK(f64_values(y) == f64_values(net(x)));
}
