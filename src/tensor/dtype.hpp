#pragma once
// Element types: f32, f64, f16, bf16, i64, and the two 16-bit floating-point value types.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace polyphase {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i64 };

/// IEEE binary16. A storage type: arithmetic is done in float.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);  ///< round to nearest even; overflow gives infinity
  explicit operator float() const;
};

/// The upper half of an IEEE binary32. A storage type: arithmetic is done in float.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);  ///< round to nearest even; NaN stays NaN
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 4;
    case DType::f64:
      return 8;
    case DType::f16:
      return 2;
    case DType::bf16:
      return 2;
    case DType::i64:
      return 8;
  }
  return 0;
}

/// "f32", "f64", "f16", "bf16" or "i64".
[[nodiscard]] std::string_view name_of(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

[[nodiscard]] constexpr bool is_floating_point(DType dtype) { return dtype != DType::i64; }
/// Throws DTypeError naming `operation` if `dtype` is i64 and `value` is not an integer in its range.
void require_representable(const char* operation, double value, DType dtype);

/// The DType of a C++ element type: `dtype_of<float>` is DType::f32.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

/// Calls `function(T{})` with the element type of `dtype`: from a run-time to a compile-time type.
template <class Function>
decltype(auto) dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f64:
      return function(double{});
    case DType::f16:
      return function(Half{});
    case DType::bf16:
      return function(BFloat16{});
    case DType::i64:
      return function(std::int64_t{});
    case DType::f32:
      break;
  }
  return function(float{});
}

}  // namespace polyphase
