#pragma once
// One f16 or bf16 bit pattern to float and back, for the ISA sources (rules: cpu/isa_target.hpp).

#include "cpu/isa_target.hpp"

namespace polyphase::cpu::POLYPHASE_ISA {

POLYPHASE_INLINE float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
POLYPHASE_INLINE std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

POLYPHASE_INLINE float f32_from_bf16(std::uint16_t half) { return float_from_bits(static_cast<std::uint32_t>(half) << 16); }

// Rounds to nearest even by adding half a unit, less one if the kept part is even; a NaN becomes quiet instead.
POLYPHASE_INLINE std::uint16_t bf16_from_f32(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// A multiplication by 2^112 moves the exponent and also normalises subnormals; infinity and NaN get their exponent set.
POLYPHASE_INLINE float f32_from_f16(std::uint16_t half) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t finite = bits_of(float_from_bits(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7f800000u;
  return float_from_bits(sign | (magnitude >= 0x0f800000u ? special : finite));
}

// Normal results are rounded in integers; small ones by adding 0.5, whose unit in the last place is the smallest f16 (2^-24).
POLYPHASE_INLINE std::uint16_t f16_from_f32(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t small = bits_of(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const std::uint32_t finite = magnitude < 0x38800000u ? small : normal;
  return static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000u ? special : finite));
}

}  // namespace polyphase::cpu::POLYPHASE_ISA
