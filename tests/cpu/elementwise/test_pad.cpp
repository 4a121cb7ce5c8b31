#include "cpu/elementwise/pad.hpp"

#include <doctest/doctest.h>

#include "cpu/threads.hpp"
#include "support/helpers.hpp"
#include "support/padding_formula.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64};

std::vector<double> values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

// Calls function(case, mode) for every valid pair.
template <class Function>
void for_each_case(const Function& function) {
  for (const PadCase& at : kPadCases)
    for (const PaddingMode mode : kPaddingModes)
      if (mode != PaddingMode::reflect || at.reflects()) function(at, mode);
}

}  // namespace

TEST_CASE("every column holds what the formula says") {
  for (const DType dtype : kTypes)
    for_each_case([&](const PadCase& at, PaddingMode mode) {
      CAPTURE(dtype);
      CAPTURE(at.L);
      CAPTURE(static_cast<int>(mode));
      const std::int64_t P = at.left + at.L + at.right;
      const Tensor x = small_integers({at.rows, at.L}, dtype), out = Tensor::full({at.rows, P}, 99, {.dtype = dtype});
      cpu::pad(out, x, at.left, mode);
      const std::vector<double> from = values_of(x);
      std::vector<double> expected;
      for (std::int64_t r = 0; r < at.rows; ++r)
        for (std::int64_t j = 0; j < P; ++j) {
          const std::int64_t i = padded_from(j, at, mode);
          expected.push_back(i < 0 ? 0 : from[static_cast<std::size_t>(r * at.L + i)]);
        }
      CHECK(values_of(out) == expected);
    });
}

TEST_CASE("in the backward pass every element gets the sum of its columns") {
  for (const DType dtype : {DType::f32, DType::f64, DType::i64})  // exact sums; sums in 16 bits would be rounded
    for_each_case([&](const PadCase& at, PaddingMode mode) {
      if (mode == PaddingMode::zeros) return;
      CAPTURE(dtype);
      CAPTURE(at.L);
      CAPTURE(static_cast<int>(mode));
      const std::int64_t P = at.left + at.L + at.right;
      const Tensor g = small_integers({at.rows, P}, dtype, 5), out = Tensor::full({at.rows, at.L}, 99, {.dtype = dtype});
      cpu::pad_backward(out, g, at.left, mode);
      const std::vector<double> from = values_of(g);
      std::vector<double> expected(static_cast<std::size_t>(at.rows * at.L));
      for (std::int64_t r = 0; r < at.rows; ++r)
        for (std::int64_t j = 0; j < P; ++j)
          expected[static_cast<std::size_t>(r * at.L + padded_from(j, at, mode))] += from[static_cast<std::size_t>(r * P + j)];
      CHECK(values_of(out) == expected);
    });
}

TEST_CASE("a million gradients of one element: nothing is lost, and 16-bit sums are rounded once") {
  constexpr std::int64_t kMany = 1 << 20;  // the last one is the element's own; one more is its neighbour's
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    const Tensor g = Tensor::full({1, kMany + 1}, 0.03125 / 4096 * 1.25, {.dtype = dtype});
    const Tensor out = Tensor::empty({1, 2}, {.dtype = dtype});
    cpu::pad_backward(out, g, kMany - 1, PaddingMode::replicate);
    CHECK(values_of(out)[0] == 10);
    CHECK(values_of(out)[1] == values_of(g)[0]);
  }
  const Tensor many = uniform_f64({1, kMany + 1}, 0, 1).to(DType::f32), out = Tensor::empty({1, 2});
  cpu::pad_backward(out, many, kMany - 1, PaddingMode::replicate);
  double sum = 0;
  for (const float value : many.narrow(-1, 0, kMany).to_vector<float>()) sum += static_cast<double>(value);
  CHECK(relative(values_of(out)[0] - sum, sum) <= kFloatRounding);
}

TEST_CASE("the thread count does not change a bit") {
  const int before = num_threads();
  for (const PaddingMode mode : {PaddingMode::reflect, PaddingMode::replicate}) {
    const Tensor g = random_f64({3, 150000}).to(DType::f32);
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      const Tensor out = Tensor::empty({3, 60000});
      cpu::pad_backward(out, g, 45000, mode);
      if (threads == 1) first = out.to_vector<float>();
      CHECK(out.to_vector<float>() == first);
    }
  }
  set_num_threads(before);
}
