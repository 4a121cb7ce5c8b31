#include "cpu/elementwise/convert.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "support/conv.hpp"
#include "tensor/dtype.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <class H>
H from_bits(std::uint16_t bits) {
  H half;
  half.bits = bits;
  return half;
}

/// Hard cases: neighbours and midpoints of f16 and bf16 numbers, and random bits.
std::vector<float> hard_numbers() {
  std::vector<float> numbers = {0.0F,      -0.0F,    INFINITY,  -INFINITY, NAN,   65504.0F,
                                65519.99F, 65520.0F, -65536.0F, 3.4e38F,   1e-45F};
  std::mt19937 random(1);
  for (int i = 0; i < 200000; ++i) numbers.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    const auto low = static_cast<float>(from_bits<Half>(static_cast<std::uint16_t>(half)));
    const auto high = static_cast<float>(from_bits<Half>(static_cast<std::uint16_t>(half + 1)));
    const float middle = std::isinf(high) ? 65520.0F : (low + high) / 2;
    for (const float value : {low, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)})
      numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

TEST_CASE("every f16 and bf16 number to f32") {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for_each_isa([&] {
    for (const std::int64_t count : {std::int64_t{65536}, std::int64_t{65521}}) {  // whole vectors, and a remainder
      std::vector<float> f16(halves.size(), 7.0F), bf16(halves.size(), 7.0F);
      cpu::convert_kernels().f16_to_f32(halves.data(), f16.data(), count);
      cpu::convert_kernels().bf16_to_f32(halves.data(), bf16.data(), count);
      int wrong = 0;
      for (std::size_t i = 0; i < halves.size(); ++i) {
        const bool touched = static_cast<std::int64_t>(i) < count;
        wrong += !same(f16[i], touched ? static_cast<float>(from_bits<Half>(halves[i])) : 7.0F);
        wrong += !same(bf16[i], touched ? static_cast<float>(from_bits<BFloat16>(halves[i])) : 7.0F);
      }
      CHECK_MESSAGE(wrong == 0, cpu_isa());
    }
  });
}

TEST_CASE("f32 to f16 and bf16 rounds to nearest even as the value types do") {
  const std::vector<float> numbers = hard_numbers();
  const auto count = static_cast<std::int64_t>(numbers.size());
  for_each_isa([&] {
    std::vector<std::uint16_t> f16(numbers.size()), bf16(numbers.size());
    cpu::convert_kernels().f32_to_f16(numbers.data(), f16.data(), count);
    cpu::convert_kernels().f32_to_bf16(numbers.data(), bf16.data(), count);
    int wrong = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      wrong += !same(static_cast<float>(from_bits<Half>(f16[i])), static_cast<float>(Half(numbers[i])));
      wrong += !same(static_cast<float>(from_bits<BFloat16>(bf16[i])), static_cast<float>(BFloat16(numbers[i])));
    }
    CHECK_MESSAGE(wrong == 0, cpu_isa());
  });
}
