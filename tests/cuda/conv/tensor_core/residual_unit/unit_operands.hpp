#pragma once
// Units for the tests of residual_unit's kernels, and their results by the kernel and in steps.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "autograd/no_grad.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/cuda.hpp"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"

namespace polyphase::testing {

inline constexpr double kSlope = 0.5;

/// A unit's tensors in f64 on the CPU.
struct UnitOperands {
  Tensor x, weights[2], biases[2];
  Tensor alphas[2], betas[2];  // with Snake
};

inline UnitConv1d conv_of(const UnitOperands& operands, std::size_t i, const ResidualUnit& unit, DType dtype, Device device) {
  const auto moved = [&](const Tensor& tensor) { return tensor.defined() ? tensor.to(dtype).to(device) : tensor; };
  ConvInputOptions input{Activation::leaky_relu, unit.slope[i]};
  if (unit.is_snake) input = {Activation::snake, 0, moved(operands.alphas[i]), moved(operands.betas[i])};
  return {moved(operands.weights[i]), moved(operands.biases[i]), unit.D[i], input};
}

inline UnitConvTensors tensors_of(const UnitConv1d& conv) {
  return {conv.weight, conv.bias, conv.input.alpha, conv.input.beta};
}

/// The kernel's result on the GPU; undefined where it refuses.
inline Tensor on_gpu(const ResidualUnit& unit, const UnitOperands& operands, const UnitAverageTensors& average = {}) {
  const Device gpu = Device::cuda(0);
  const UnitConv1d first = conv_of(operands, 0, unit, unit.dtype, gpu), second = conv_of(operands, 1, unit, unit.dtype, gpu);
  const Tensor x = operands.x.to(unit.dtype).to(gpu), out = Tensor::full(x.shape(), 77, {.dtype = unit.dtype, .device = gpu});
  const bool is_computed = backend_of(gpu).residual_unit(unit, x, {tensors_of(first), tensors_of(second)}, average, out);
  return is_computed ? out : Tensor();
}

/// The same in f64 on the CPU.
inline Tensor computed(const ResidualUnit& unit, const UnitOperands& operands) {
  const Tensor out = on_gpu(unit, operands);
  return out.defined() ? out.cpu().to(DType::f64) : out;
}

/// The steps in `dtype` on the CPU, in f64; `dtype` f64 has no roundings but those of the operands to the unit's dtype.
inline Tensor in_steps(const ResidualUnit& unit, const UnitOperands& operands, DType dtype) {
  UnitOperands rounded = operands;
  const auto round = [&](Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(unit.dtype).to(DType::f64);
  };
  round(rounded.x);
  for (std::size_t i = 0; i < 2; ++i)
    for (Tensor* each : {&rounded.weights[i], &rounded.biases[i], &rounded.alphas[i], &rounded.betas[i]}) round(*each);
  const NoGradGuard no_grad;
  return residual_unit(rounded.x.to(dtype), conv_of(rounded, 0, unit, dtype, Device::cpu()),
                       conv_of(rounded, 1, unit, dtype, Device::cpu()), unit.scale)
      .to(DType::f64);
}

/// Small integers, mostly zeros: all sums are exact in 8 bits.
inline Tensor sparse_integers(const Shape& shape, double share, std::uint64_t seed) {
  const std::vector<double> random = uniform_f64(shape, -1, 1, seed).to_vector<double>();
  std::vector<double> values(random.size());
  std::transform(random.begin(), random.end(), values.begin(), [share](double v) {
    if (std::abs(v) < 1 - share) return 0.0;
    return v < 0 ? -2.0 : 2.0;
  });
  return Tensor::from_vector(values, shape);
}

/// The shape of convolution i's weights.
inline Shape weight_shape(const ResidualUnit& unit, std::size_t i) {
  return {unit.C, unit.is_depthwise && i == 0 ? 1 : unit.C, unit.K[i]};
}

/// `per_sum`: about how many terms of a sum are not zero.
inline UnitOperands integer_operands(const ResidualUnit& unit, double per_sum, bool with_bias) {
  UnitOperands operands;
  operands.x = sparse_integers({unit.N, unit.C, unit.L}, 0.5, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    const Shape shape = weight_shape(unit, i);
    const double share = std::min(1.0, per_sum / static_cast<double>(shape[1] * shape[2]));
    operands.weights[i] = sparse_integers(shape, share, 2 + i);
    if (with_bias) operands.biases[i] = sparse_integers({unit.C}, 0.5, 4 + i);
    // Snake of alpha 0 changes nothing.
    operands.alphas[i] = Tensor::zeros({unit.C}, {.dtype = DType::f64});
    operands.betas[i] = Tensor::full({unit.C}, 1, {.dtype = DType::f64});
  }
  return operands;
}

inline UnitOperands random_operands(const ResidualUnit& unit) {
  UnitOperands operands;
  operands.x = random_f64({unit.N, unit.C, unit.L}, 1);
  for (std::size_t i = 0; i < 2; ++i) {
    const Shape shape = weight_shape(unit, i);
    operands.weights[i] = random_f64(shape, 2 + i) * (1 / std::sqrt(static_cast<double>(shape[1] * shape[2])));
    operands.biases[i] = random_f64({unit.C}, 4 + i);
    operands.alphas[i] = uniform_f64({unit.C}, 0.2, 3, 6 + i), operands.betas[i] = uniform_f64({unit.C}, 0.2, 3, 8 + i);
  }
  return operands;
}

inline std::vector<double> f64_values(const Tensor& tensor) { return tensor.detach().cpu().to(DType::f64).to_vector<double>(); }

/// Averages in the kernel have the bits of average_of() behind it, also of numbers that are no ordinary ones. `changed` may
/// change x.
inline void check_averages(const ResidualUnit& unit, const std::function<void(std::vector<double>&)>& changed = {}) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  UnitOperands operands = random_operands(unit);
  if (changed) {
    std::vector<double> x = operands.x.to_vector<double>();
    changed(x);
    operands.x = Tensor::from_vector(x, operands.x.shape());
  }
  std::vector<double> others = random_f64(operands.x.shape(), 11).to_vector<double>();
  const double largest = unit.dtype == DType::f16 ? 65504 : 3.38e38;
  const std::array special{0.0, -0.0, kInfinity, -kInfinity, std::nan(""), largest, -largest, 6e-8, -1e-39, 3e-45};
  for (std::size_t i = 0; i < special.size(); ++i) others[i * 97 % others.size()] = special[i];
  const Tensor other = Tensor::from_vector(others, operands.x.shape()).to(unit.dtype).to(Device::cuda(0));
  const Tensor alone = on_gpu(unit, operands);
  REQUIRE(alone.defined());
  const auto bits = [](const Tensor& tensor) {
    const Tensor values = tensor.cpu().to(DType::f32);
    std::vector<std::uint32_t> all;
    for (const float v : values.to_vector<float>())
      all.push_back(std::isnan(v) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(v));
    return all;
  };
  for (const auto& [divisor, slope] : {std::pair{1.0, 1.0}, {3.0, 1.0}, {3.0, 0.1}, {2.0, 0.0}, {63.0, 0.3}}) {
    CAPTURE(divisor);
    CAPTURE(slope);
    const Tensor y = on_gpu(unit, operands, {other, divisor, slope});
    REQUIRE(y.defined());
    const auto activation = slope == 1 ? Activation::none : Activation::leaky_relu;
    const auto got = bits(y), expected = bits(average_of(std::array{other, alone}, divisor, activation, slope));
    const auto differs = std::mismatch(got.begin(), got.end(), expected.begin());
    CHECK(differs.first - got.begin() == std::ssize(got));
  }
  CHECK_FALSE(on_gpu(unit, operands, {other, 6, 1}).defined());
  CHECK_FALSE(on_gpu(unit, operands, {other, 1.5, 1}).defined());
}

/// The kernel against f64 on small integers.
inline void check_exact(const ResidualUnit& unit) {
  const bool is_f16 = unit.dtype != DType::bf16;  // or f32 to the accuracy of tf32, which has as many bits
  const UnitOperands operands = integer_operands(unit, is_f16 ? 8 : 3, unit.L % 16 == 0);
  const Tensor y = computed(unit, operands);
  REQUIRE(y.defined());
  const Tensor exact = in_steps(unit, operands, DType::f64);
  // bf16 has 8 bits.
  REQUIRE(max_difference(exact, Tensor::zeros(exact.shape(), {.dtype = DType::f64})) <= (is_f16 ? 2000 : 240));
  CHECK(max_difference(y, exact) == 0);
}

/// All results are finite, and none is where a channel of the second Snake has beta zero.
inline void check_beta_zero(const ResidualUnit& unit, UnitOperands operands) {
  const auto finite = [&] {
    const std::vector<double> y = f64_values(computed(unit, operands));
    return std::count_if(y.begin(), y.end(), [](double v) { return std::isfinite(v); });
  };
  CHECK(finite() == unit.N * unit.C * unit.L);
  std::vector<double> beta = operands.betas[1].to_vector<double>();
  beta[5] = 0;
  operands.betas[1] = Tensor::from_vector(beta, {unit.C});
  CHECK(finite() == 0);
}

/// A negative infinity in the middle of a row is zero for what reads it through ReLU.
inline void check_relu_of_infinity(const ResidualUnit& unit) {
  UnitOperands operands = random_operands(unit), spoilt = operands;
  std::vector<double> x = operands.x.to_vector<double>();
  const auto at = static_cast<std::size_t>((7 * unit.C + 3) * unit.L + 250);
  x[at] = 0;
  operands.x = Tensor::from_vector(x, operands.x.shape());
  x[at] = -std::numeric_limits<double>::infinity();
  spoilt.x = Tensor::from_vector(x, operands.x.shape());
  std::vector<double> expected = f64_values(computed(unit, operands));
  expected[at] = -std::numeric_limits<double>::infinity();
  CHECK(f64_values(computed(unit, spoilt)) == expected);
}

inline bool has_kernel() {
  return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !cuda::tensor_core::uses_mma(90);
}

}  // namespace polyphase::testing
