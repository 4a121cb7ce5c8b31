#pragma once
// What the kernels of layer norm and RMS norm share.

#include <cstdint>

#include "cuda/kernel/address.hpp"
#include "cuda/kernel/elements.cuh"
#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// The addresses and numbers of NormInputs and NormOutputs.
template <class T>
struct NormCall {
  using A = MathOf<T>;
  const T *x, *weight, *bias;  // the last two may be null
  T *y, *normal, *scale;       // the last two may be null
  double epsilon;
  bool centres;

  NormCall(const NormOutputs& out, const NormInputs& in)
      : x(address_or_null<T>(in.x)),
        weight(address_or_null<T>(in.weight)),
        bias(address_or_null<T>(in.bias)),
        y(address_or_null<T>(out.y)),
        normal(address_or_null<T>(out.normal)),
        scale(address_or_null<T>(out.scale)),
        epsilon(in.epsilon),
        centres(in.centres) {}

  /// What is subtracted from the numbers of a position, near + rest, and what multiplies them then.
  struct Position {
    A near, rest, factor;
  };
  [[nodiscard]] __device__ __forceinline__ Position position(double mean, double variance) const {
    const A near = static_cast<A>(mean);
    return {near, static_cast<A>(mean - static_cast<double>(near)), static_cast<A>(1 / sqrt(variance + epsilon))};
  }
  /// Stores the result of `value`, which is of channel c and at x[at].
  __device__ __forceinline__ void store(const Position& of, std::int64_t at, std::int64_t c, A value) const {
    const A result = ((value - of.near) - of.rest) * of.factor;
    A shifted = result;
    if (weight != nullptr) shifted *= convert<A>(weight[c]);
    if (bias != nullptr) shifted += convert<A>(bias[c]);
    y[at] = convert<T>(shifted);
    if (normal != nullptr) normal[at] = convert<T>(result);
  }
};

}  // namespace polyphase::cuda
