#pragma once
// The operands of a convolution with an epilogue, on the GPU.

#include <cmath>
#include <cstdint>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "support/cuda_conv_grid.hpp"
#include "support/device.hpp"

namespace polyphase::testing {

/// Every byte of a tensor's storage, guards included.
inline std::vector<char> bytes_of(const Tensor& tensor) {
  std::vector<char> bytes(tensor.storage().bytes());
  gpu().copy_to_host(bytes.data(), tensor.storage().data(), bytes.size());
  return bytes;
}

/// Whether every element of a tensor made by target() was written.
inline bool is_written(const Tensor& result) {
  const std::vector<char> bytes = bytes_of(result);
  const std::size_t size = size_of(result.dtype());
  return count_unwritten(bytes.data() + static_cast<std::size_t>(result.offset()) * size, result.numel(), size) == 0;
}

/// The operands of one direction of a problem on the GPU, `misalignment` elements past an aligned address.
struct Operands {
  ConvProblem problem;
  ConvDirection direction;
  std::int64_t misalignment;
  Shape shape;  // of the result
  Tensor source, w, bias, alpha, beta, residual, result;

  /// Aux tensors begin `further` elements later than outputs.
  Operands(const ConvProblem& p, ConvDirection direction_, DType dtype, std::int64_t misalignment_, bool is_spread = false,
           std::int64_t further = 0)
      : problem(p), direction(direction_), misalignment(misalignment_) {
    problem.dtype = dtype;
    const bool is_forward = direction == ConvDirection::forward;
    const Shape x{p.N, p.C_in, p.L_in}, y{p.N, p.C_out, p.L_out};
    shape = is_forward ? y : x;
    const Tensor values = random_f64(is_forward ? x : y, 1);
    // Numbers that two f16 cannot hold at one scale: many are too small, one is too large.
    if (is_spread) {
      auto* const numbers = values.data<double>();
      for (std::int64_t i = 0; i < values.numel(); i += 37) numbers[i] *= 1e-12;
      for (std::int64_t i = 0; i < values.numel(); i += values.size(2)) numbers[i] = 0;
      numbers[values.numel() / 2] = 1e20;
    }
    source = placed(values);
    w = placed(random_f64({p.C_in, p.C_out / p.G, p.K}, 2));
    bias = placed(random_f64({shape[1]}, 3));
    alpha = placed(uniform_f64({shape[1]}, 0.5, 2, 4));
    beta = placed(uniform_f64({shape[1]}, 0.5, 2, 5));
    residual = placed(random_f64(shape, 6), further);
    const Tensor results = uniform_f64(shape, -1, 1, 7);
    for (std::int64_t i = 3; i < results.numel(); i += 50) results.data<double>()[i] = std::nan("");
    result = placed(results, further);
  }
  [[nodiscard]] Tensor placed(const Tensor& values, std::int64_t further = 0) const {
    Tensor to = poisoned(values.shape(), problem.dtype, misalignment + further);
    to.copy_(values.to(problem.dtype));
    return mirrored(to);
  }
  [[nodiscard]] Tensor target(std::int64_t further = 0) const {
    return mirrored(poisoned(shape, problem.dtype, misalignment + further));
  }
  [[nodiscard]] Tensor plain(Algorithm algorithm, Precision precision) const {
    const Tensor out = target();
    const auto run = direction == ConvDirection::forward ? &Backend::conv_forward : &Backend::conv_dgrad;
    (gpu().*run)(problem, source, w, bias, out, algorithm, precision);
    return out;
  }
};

/// Distances in bytes from `out`.
inline cuda::Epilogue pointers_of(const ConvEpilogue& epilogue, const Operands& operands, const Tensor& out) {
  const auto distance = [&](const Tensor& to) -> std::int64_t {
    return to.defined() ? static_cast<const char*>(to.raw()) - static_cast<const char*>(out.raw()) : 0;
  };
  return {epilogue.activation,         epilogue.slope, operands.alpha.raw(),      operands.beta.raw(),
          distance(epilogue.residual), epilogue.scale, distance(epilogue.before), distance(epilogue.derivative)};
}

}  // namespace polyphase::testing
