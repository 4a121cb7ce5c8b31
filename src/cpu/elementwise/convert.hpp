#pragma once
// Converts whole arrays from one floating-point type to another with vector instructions. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

/// Conversions of `count` elements. 16-bit types are their bit patterns. To a 16-bit type: round to nearest even, NaN stays
/// NaN.
struct ConvertKernels {
  void (*f16_to_f32)(const std::uint16_t* from, float* to, std::int64_t count);
  void (*f32_to_f16)(const float* from, std::uint16_t* to, std::int64_t count);
  void (*bf16_to_f32)(const std::uint16_t* from, float* to, std::int64_t count);
  void (*f32_to_bf16)(const float* from, std::uint16_t* to, std::int64_t count);
};

template <Isa isa>
const ConvertKernels& convert_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
/// The conversions for the instruction set in use.
inline const ConvertKernels& convert_kernels() {
  return dispatch_isa([](auto tag) -> const ConvertKernels& { return convert_kernels<tag.value>(); });
}
#endif

}  // namespace polyphase::cpu
