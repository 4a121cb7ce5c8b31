#include "tensor/dtype.hpp"

#include <cmath>
#include <ostream>

#include "tensor/error.hpp"

namespace polyphase {

// Normal results are rounded in integers; small ones by adding 0.5, whose unit in the last place is the smallest f16 (2^-24).
Half::Half(float value) {
  const auto float_bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (float_bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = float_bits & 0x7fffffffu;
  std::uint32_t result = 0;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;  // 65520 and more round to infinity
  } else if (magnitude >= 0x38800000u) {
    result = (magnitude - 0x38000000u + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    result = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  bits = static_cast<std::uint16_t>(sign | result);
}

// A multiplication by 2^112 moves the exponent and also normalises subnormals; infinity and NaN get their exponent set.
Half::operator float() const {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(bits & 0x7fffu) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  return std::bit_cast<float>(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

// Adds half a unit, less one if the kept part is even; a NaN becomes quiet instead.
BFloat16::BFloat16(float value) {
  const auto float_bits = std::bit_cast<std::uint32_t>(value);
  const bool is_nan = (float_bits & 0x7fffffffu) > 0x7f800000u;
  const std::uint32_t rounded = (float_bits + 0x7fffu + ((float_bits >> 16) & 1u)) >> 16;
  bits = static_cast<std::uint16_t>(is_nan ? (float_bits >> 16) | 0x40u : rounded);
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "i64";
  }
  return "unknown";
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

void require_representable(const char* operation, double value, DType dtype) {
  require<DTypeError>(is_floating_point(dtype) || (value == std::nearbyint(value) && std::abs(value) < 0x1p63), operation,
                      ": expected a value that i64 can hold, got ", value);
}

}  // namespace polyphase
