#include "tensor/dtype.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tensor/error.hpp"

namespace pp = polyphase;

namespace {

std::uint16_t half_bits(float value) { return pp::Half(value).bits; }
std::uint16_t bfloat_bits(float value) { return pp::BFloat16(value).bits; }

// Independent of the code under test: the value of an f16 by its definition.
double half_value(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10) & 0x1f;
  const double fraction = static_cast<double>(bits & 0x3ff) / 1024;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("every half has its value and comes back") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    pp::Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto value = static_cast<float>(half);
    const bool special = (bits & 0x7c00) == 0x7c00;
    if (special && (bits & 0x3ff) != 0) {
      wrong += !std::isnan(value) || !std::isnan(static_cast<float>(pp::Half(value)));
    } else if (special) {
      wrong += !std::isinf(value) || std::signbit(value) != ((bits & 0x8000) != 0) || half_bits(value) != bits;
    } else {
      wrong += static_cast<double>(value) != half_value(bits) || std::signbit(value) != ((bits & 0x8000) != 0) ||
               half_bits(value) != bits;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("between two f16 numbers the nearer is taken, and the even one at the middle") {
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<float>(half_value(bits));
    const auto high = static_cast<float>(half_value(bits + 1));
    const float middle = (low + high) / 2;  // exact: one bit more than f16 has
    wrong += half_bits(middle) != ((bits & 1) != 0 ? bits + 1 : bits);
    wrong += half_bits(std::nextafter(middle, 0.0f)) != bits;
    wrong += half_bits(std::nextafter(middle, 1e9f)) != bits + 1;
    wrong += half_bits(-middle) != (((bits & 1) != 0 ? bits + 1 : bits) | 0x8000);
  }
  CHECK(wrong == 0);
}

TEST_CASE("f16: overflow, underflow, infinity, NaN") {
  CHECK(half_bits(65504.0f) == 0x7bff);
  CHECK(half_bits(65519.996f) == 0x7bff);
  CHECK(half_bits(65520.0f) == 0x7c00);
  CHECK(half_bits(-1e30f) == 0xfc00);
  CHECK(half_bits(std::numeric_limits<float>::infinity()) == 0x7c00);
  CHECK((half_bits(std::numeric_limits<float>::quiet_NaN()) & 0x7fff) > 0x7c00);
  CHECK(half_bits(0x1p-24f) == 1);
  CHECK(half_bits(0x1p-25f) == 0);
  CHECK(half_bits(0x1.000002p-25f) == 1);
  CHECK(half_bits(-0.0f) == 0x8000);
  CHECK(half_bits(1e-45f) == 0);
}

TEST_CASE("bfloat16 keeps the upper half, rounded to nearest even") {
  CHECK(bfloat_bits(1.0f) == 0x3f80);
  CHECK(bfloat_bits(0x1.01p0f) == 0x3f80);  // the middle between 0x3f80 and 0x3f81
  CHECK(bfloat_bits(0x1.03p0f) == 0x3f82);
  CHECK(bfloat_bits(0x1.010002p0f) == 0x3f81);
  CHECK(bfloat_bits(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(bfloat_bits(-std::numeric_limits<float>::infinity()) == 0xff80);
  CHECK(std::isnan(static_cast<float>(pp::BFloat16(std::bit_cast<float>(0x7f800001u)))));
  CHECK(std::isnan(static_cast<float>(pp::BFloat16(std::bit_cast<float>(0xffffffffu)))));
  int wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    pp::BFloat16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    if (std::isnan(static_cast<float>(value))) continue;
    wrong += bfloat_bits(static_cast<float>(value)) != bits;
  }
  CHECK(wrong == 0);
}

TEST_CASE("names and sizes") {
  CHECK(pp::name_of(pp::DType::f32) == "f32");
  CHECK(pp::concat(pp::DType::f64, ' ', pp::DType::f16, ' ', pp::DType::bf16, ' ', pp::DType::i64) == "f64 f16 bf16 i64");
  CHECK(pp::size_of(pp::DType::f32) == sizeof(float));
  CHECK(pp::size_of(pp::DType::f64) == sizeof(double));
  CHECK(pp::size_of(pp::DType::f16) == sizeof(pp::Half));
  CHECK(pp::size_of(pp::DType::bf16) == sizeof(pp::BFloat16));
  CHECK(pp::size_of(pp::DType::i64) == sizeof(std::int64_t));
  CHECK(pp::is_floating_point(pp::DType::bf16));
  CHECK_FALSE(pp::is_floating_point(pp::DType::i64));
}

TEST_CASE("dispatch calls with the element type") {
  for (const pp::DType dtype : {pp::DType::f32, pp::DType::f64, pp::DType::f16, pp::DType::bf16, pp::DType::i64}) {
    CHECK(pp::dispatch(dtype, []<class T>(T) { return pp::dtype_of<T>; }) == dtype);
  }
}
