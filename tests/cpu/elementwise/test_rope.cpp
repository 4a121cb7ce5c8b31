#include "cpu/elementwise/rope.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("pairs of views are turned by their positions, and back") {
  const Tensor x = random_f64({2, 5, 3, 8}).transpose(1, 2).narrow(3, 1, 6);
  for (const bool interleaved : {true, false})
    for (const bool is_listed : {true, false}) {
      Rotation rotation{.offset = 4, .base = 50, .interleaved = interleaved};
      if (is_listed) rotation.positions = Tensor::from_vector<std::int64_t>({4, 5, 6, 7, 8});
      if (is_listed) rotation.frequencies = Tensor::from_vector<double>({1, std::pow(50, -1.0 / 3), std::pow(50, -2.0 / 3)});
      const Tensor y = Tensor::empty(x.shape(), {.dtype = DType::f64}), back = Tensor::empty_like(y);
      cpu::rope(y, x, rotation);
      const auto xs = x.contiguous().to_vector<double>(), ys = y.to_vector<double>();
      for (std::size_t row = 0; row < 30; ++row)
        for (std::size_t i = 0; i < 3; ++i) {
          const double angle = (4 + static_cast<double>(row % 5)) * std::pow(50, -static_cast<double>(i) / 3);
          const std::size_t a = row * 6 + (interleaved ? 2 * i : i), b = row * 6 + (interleaved ? 2 * i + 1 : i + 3);
          CHECK(std::abs(ys[a] - (xs[a] * std::cos(angle) - xs[b] * std::sin(angle))) <= kDoubleRounding);
          CHECK(std::abs(ys[b] - (xs[b] * std::cos(angle) + xs[a] * std::sin(angle))) <= kDoubleRounding);
        }
      rotation.reversed = true;
      cpu::rope(back, y, rotation);
      CHECK(max_difference(back, x) <= kDoubleRounding);
    }
}

TEST_CASE("pairs of 16 bits are turned in f32 and rounded once") {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const bool interleaved : {true, false}) {
      const Tensor x = random_f64({2, 5, 3, 8}).to(dtype).transpose(1, 2).narrow(3, 1, 6);
      const Rotation rotation{.offset = 4, .base = 50, .interleaved = interleaved};
      const Tensor y = Tensor::empty(x.shape(), {.dtype = dtype}), wide = Tensor::empty(x.shape(), {.dtype = DType::f32});
      cpu::rope(y, x, rotation);
      cpu::rope(wide, x.to(DType::f32), rotation);
      CHECK(max_difference(y, wide.to(dtype)) == 0);
    }
}
