#include "cpu/elementwise/random.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "cpu/threads.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr GeneratorState kState{42, 5};

Tensor uniform(std::int64_t count, DType dtype, double low = 0, double high = 1, GeneratorState state = kState) {
  Tensor out = Tensor::full({count}, 7, {.dtype = dtype});
  cpu::uniform(out, state, low, high);
  return out;
}
Tensor normal(std::int64_t count, DType dtype, double mean = 0, double deviation = 1, GeneratorState state = kState) {
  Tensor out = Tensor::full({count}, 7, {.dtype = dtype});
  cpu::normal(out, state, mean, deviation);
  return out;
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0;
};
Moments moments(const Tensor& t) {
  Moments m;
  const std::vector<double> values = t.to(DType::f64).to_vector<double>();
  const auto n = static_cast<double>(values.size());
  for (const double v : values) m.mean += v / n;
  for (const double v : values) m.variance += std::pow(v - m.mean, 2) / n, m.fourth += std::pow(v - m.mean, 4) / n;
  return m;
}

}  // namespace

TEST_CASE("which word makes which element") {
  const auto first = philox4x32(42, 5), second = philox4x32(42, 6);
  std::vector<float> f32;
  for (const auto& block : {first, second})
    for (const std::uint32_t word : block) f32.push_back(static_cast<float>(word >> 8U) * 0x1p-24F);
  CHECK(uniform(8, DType::f32).to_vector<float>() == f32);
  f32.resize(6);
  CHECK(uniform(6, DType::f32).to_vector<float>() == f32);
  const auto wide = [](std::uint32_t high, std::uint32_t low) {
    return static_cast<double>((static_cast<std::uint64_t>(high) << 32U | low) >> 11U) * 0x1p-53;
  };
  CHECK(uniform(3, DType::f64).to_vector<double>() ==
        std::vector<double>{wide(first[0], first[1]), wide(first[2], first[3]), wide(second[0], second[1])});
  const std::vector<double> gauss = normal(4, DType::f32).to(DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(f32[i]))),
                 angle = 2 * std::acos(-1.0) * static_cast<double>(f32[i + 1]);
    CHECK(std::abs(gauss[i] - radius * std::cos(angle)) <= kFloatRounding);
    CHECK(std::abs(gauss[i + 1] - radius * std::sin(angle)) <= kFloatRounding);
  }
}

TEST_CASE("known values: a saved seed must mean the same numbers for ever") {
  // These words are published for Philox 4x32-10 with a zero key and counter: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
  const GeneratorState zero{0, 0};
  CHECK(uniform(4, DType::f32, 0, 1, zero).to_vector<float>() ==
        std::vector<float>{0x1.989fap-2F, 0x1.c2d38ap-1F, 0x1.78af58p-1F, 0x1.3601b6p-1F});
  CHECK(uniform(2, DType::f64, 0, 1, zero).to_vector<double>() ==
        std::vector<double>{0x1.989fa35785a7p-2, 0x1.78af58993601bp-1});
  const Tensor gauss = Tensor::from_vector<double>({-0x1.7293e0b2c8f57p-4, -0x1.01505191e05a9p+0});
  CHECK(max_difference(normal(2, DType::f64, 0, 1, zero), gauss) <= kDoubleRounding);
}

TEST_CASE("moments") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    const Moments u = moments(uniform(100000, dtype, -1, 3)), n = moments(normal(100000, dtype, 2, 0.5));
    CHECK(std::abs(u.mean - 1) < 0.015);
    CHECK(std::abs(u.variance - 16.0 / 12) < 0.02);
    CHECK(std::abs(n.mean - 2) < 0.01);
    CHECK(std::abs(n.variance - 0.25) < 0.005);
    CHECK(std::abs(n.fourth - 3 * 0.0625) < 0.01);
  }
}

TEST_CASE("bounds") {
  const std::vector<float> tight = uniform(100000, DType::f32, 1, 1 + 0x1p-22).to_vector<float>();
  CHECK(*std::min_element(tight.begin(), tight.end()) == 1);
  CHECK(*std::max_element(tight.begin(), tight.end()) < 1 + 0x1p-22F);
  CHECK(uniform(3, DType::f32, 2, 2).to_vector<float>() == std::vector<float>{2, 2, 2});
  CHECK(uniform(0, DType::f32).numel() == 0);
}

TEST_CASE("neither the thread count nor the length changes an element") {
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<float> u = uniform(100003, DType::f32).to_vector<float>(),
                           n = normal(100003, DType::f32).to_vector<float>();
  for (const int threads : {2, 3}) {
    set_num_threads(threads);
    CHECK(uniform(100003, DType::f32).to_vector<float>() == u);
    CHECK(normal(100003, DType::f32).to_vector<float>() == n);
  }
  set_num_threads(before);
  CHECK(normal(1001, DType::f32).to_vector<float>() == std::vector<float>(n.begin(), n.begin() + 1001));
}

TEST_CASE("integers are refused") {
  CHECK(error_of<DTypeError>([] { return uniform(1, DType::i64); }) == "uniform: expected a floating-point dtype, got i64");
  CHECK(error_of<DTypeError>([] { return normal(1, DType::i64); }) == "normal: expected a floating-point dtype, got i64");
}
