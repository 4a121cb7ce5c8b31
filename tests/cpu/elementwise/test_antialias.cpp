#include "cpu/elementwise/antialias.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "support/antialias_formula.hpp"
#include "support/device.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// Tolerances: one rounding of the result, and the arithmetic before it (values up to about 10, slopes up to 5).
double rounding_of(DType dtype) { return dtype == DType::f16 ? kHalfUnit : dtype == DType::bf16 ? kBFloat16Unit : 0; }
double arithmetic_of(DType dtype) { return dtype == DType::f64 ? kDoubleRounding : 2 * kFloatFunction; }

const TensorOptions kHost{.dtype = DType::f32, .device = Device::cpu()};
Tensor poisoned_like(const Tensor& tensor) {
  return Tensor::full(tensor.shape(), 99, {.dtype = tensor.dtype(), .device = Device::cpu()});
}

AntialiasedSnakeGradients gradients_of(const AntialiasedOperands& operands) {
  const AntialiasedSnakeGradients out{poisoned_like(operands.in.x), poisoned_like(operands.in.alpha),
                                      poisoned_like(operands.in.beta)};
  cpu::antialiased_snake_backward(out, operands.in, operands.g);
  return out;
}

void check_all(const Shape& shape, DType dtype, DType parameters) {
  CAPTURE(shape);
  CAPTURE(dtype);
  CAPTURE(parameters);
  const AntialiasedOperands operands = antialiased_operands(shape, dtype, parameters), exact = in_f64(operands);
  const AntialiasedFormula expected = antialiased_formula(exact.in, exact.g);
  const Tensor y = poisoned_like(operands.in.x);
  cpu::antialiased_snake(y, operands.in);
  CHECK(worst_difference(expected.y, y) <= rounding_of(dtype) + arithmetic_of(dtype));
  const AntialiasedSnakeGradients got = gradients_of(operands);
  CHECK(worst_difference(expected.x, got.x) <= rounding_of(dtype) + 2 * arithmetic_of(dtype));
  CHECK(sum_error(got.alpha, expected.alpha, expected.alpha_size, rounding_of(parameters)) <= arithmetic_of(dtype));
  CHECK(sum_error(got.beta, expected.beta, expected.beta_size, rounding_of(parameters)) <= arithmetic_of(dtype));
}

}  // namespace

TEST_CASE("an activation at twice the rate, and its gradients, are what the definition says, on every instruction set") {
  const Isa before = cpu::current_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!cpu::isa_available(isa)) continue;
    cpu::set_isa(isa);
    CAPTURE(static_cast<int>(isa));
    for (const std::int64_t length : kAntialiasLengths)
      for (const DType dtype : {DType::f32, DType::f64}) check_all({1, 2, length}, dtype, dtype);
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const DType parameters : {dtype, DType::f32}) check_all({2, 3, 1030}, dtype, parameters);
    check_all({3, 2, 40}, DType::f32, DType::f64);
  }
  cpu::set_isa(before);
}

TEST_CASE("an output's bits are those of its inputs, wherever its task ends, and an infinity stays within its reach") {
  const AntialiasedOperands operands = antialiased_operands({1, 1, 3000}, DType::f32, DType::f32);
  const auto run = [&](const Tensor& x) {
    AntialiasedSnake in = operands.in;
    in.x = x;
    const Tensor y = poisoned_like(x);
    cpu::antialiased_snake(y, in);
    return y.to_vector<float>();
  };
  const std::vector<float> whole = run(operands.in.x);
  for (const std::int64_t first : {1, 7, 500, 1019, 1024}) {
    const std::vector<float> part = run(operands.in.x.narrow(2, first, 1500).contiguous());
    for (std::size_t t = 5; t + 5 < part.size(); ++t) REQUIRE(part[t] == whole[t + static_cast<std::size_t>(first)]);
  }
  const Tensor infinite = operands.in.x.clone();
  infinite.data<float>()[1022] = std::numeric_limits<float>::infinity();
  const std::vector<float> y = run(infinite);
  for (std::size_t t = 0; t < y.size(); ++t) CHECK((y[t] == whole[t]) == (t < 1017 || t > 1027));
}

TEST_CASE("gradients that are not requested are not written, and those of no samples are zero") {
  const AntialiasedOperands operands = antialiased_operands({2, 3, 60}, DType::f32, DType::f32);
  const AntialiasedSnakeGradients all = gradients_of(operands);
  const AntialiasedSnakeGradients x{poisoned_like(all.x), {}, {}}, alpha{{}, poisoned_like(all.alpha), {}},
      beta{{}, {}, poisoned_like(all.beta)};
  for (const AntialiasedSnakeGradients* some : {&x, &alpha, &beta})
    cpu::antialiased_snake_backward(*some, operands.in, operands.g);
  CHECK(max_difference(x.x, all.x) == 0);
  CHECK(max_difference(alpha.alpha, all.alpha) == 0);
  CHECK(max_difference(beta.beta, all.beta) == 0);
  const AntialiasedOperands none = antialiased_operands({0, 3, 60}, DType::f32, DType::f32);
  const AntialiasedSnakeGradients nothing = gradients_of(none);
  CHECK(nothing.alpha.to_vector<float>() == std::vector<float>(3, 0.0F));
  CHECK(nothing.beta.to_vector<float>() == std::vector<float>(3, 0.0F));
  cpu::antialiased_snake(nothing.x, none.in);
}

TEST_CASE("the thread count does not change a bit of an activation at twice the rate") {
  const int before = num_threads();
  const AntialiasedOperands operands = antialiased_operands({2, 9, 5000}, DType::f32, DType::f32);
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Tensor y = Tensor::empty(operands.in.x.shape(), kHost);
    cpu::antialiased_snake(y, operands.in);
    const AntialiasedSnakeGradients got = gradients_of(operands);
    std::vector<std::vector<float>> values;
    for (const Tensor& tensor : {y, got.x, got.alpha, got.beta}) values.push_back(tensor.to_vector<float>());
    if (threads == 1) first = values;
    CHECK(values == first);
  }
  set_num_threads(before);
}
