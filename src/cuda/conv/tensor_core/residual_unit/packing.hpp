#pragma once
// The packed weights of residual units.

#include <cstdint>

#include "conv/algorithm.hpp"
#include "conv/residual_unit.hpp"
#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda::tensor_core {

/// Identifies the packed weights of convolution i; 16 bits and each precision of f32 are packed in different ways.
inline PackingKey unit_packing_key(const ResidualUnit& unit, std::size_t i) {
  constexpr std::int64_t kUnitPacking = -5;  // not a ConvDirection, which other keys have here, nor prologue.cuh's packing
  const Precision precision = unit.dtype == DType::f32 ? unit.precision : Precision::fp32;
  return {static_cast<std::int64_t>(Algorithm::tensor_core),
          kUnitPacking,
          static_cast<std::int64_t>(unit.dtype),
          static_cast<std::int64_t>(precision),
          unit.C,
          unit.K[i]};
}

/// The bytes of the weights of convolution i as one operand of 16 bits.
inline std::size_t unit_weight_bytes(const ResidualUnit& unit, std::size_t i) {
  return static_cast<std::size_t>(unit.K[i] * unit.C * unit.C) * 2;
}

}  // namespace polyphase::cuda::tensor_core
