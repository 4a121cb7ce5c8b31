#include "cpu/elementwise/upsample.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"
#include "support/upsampling_formula.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Tolerance for a value of order 1 after a few roundings.
double rounding_of(DType dtype) {
  return dtype == DType::f64   ? kDoubleRounding
         : dtype == DType::f32 ? kFloatRounding
         : dtype == DType::f16 ? kHalfRounding
                               : kBFloat16Rounding;
}

Tensor lengthened(const Tensor& x, std::int64_t scale) {
  Tensor out = Tensor::full({x.size(0), x.size(1) * scale}, 99, {.dtype = x.dtype()});
  cpu::upsample_linear(out, x, scale);
  return out;
}

}  // namespace

TEST_CASE("every output is what the definition says, on every instruction set") {
  const Isa before = cpu::current_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!cpu::isa_available(isa)) continue;
    cpu::set_isa(isa);
    for (const DType dtype : kTypes)
      for (const UpsampleCase& at : kUpsampleCases) {
        CAPTURE(static_cast<int>(isa));
        CAPTURE(dtype);
        CAPTURE(at.L);
        CAPTURE(at.scale);
        const Tensor x = uniform_f64({at.rows, at.L}, -2, 2).to(dtype), y = lengthened(x, at.scale);
        CHECK(max_difference(y, upsampled(x.to(DType::f64), at.scale)) <= rounding_of(dtype));
        // Backward: sums of 2*scale terms, each rounded; the gradients are scaled so that their sum is of order 1.
        const double most = 2.0 / static_cast<double>(at.scale);
        const Tensor g = uniform_f64(y.shape(), -most, most, 3).to(dtype);
        const Tensor back = Tensor::full(x.shape(), 99, {.dtype = dtype});
        cpu::upsample_linear_backward(back, g, at.scale);
        CHECK(max_difference(back, upsampled_back(g.to(DType::f64), at.scale)) <= rounding_of(dtype));
      }
  }
  cpu::set_isa(before);
}

TEST_CASE("f32 is off by no more than a unit in the last place of numbers as large as its neighbours") {
  for (const std::int64_t scale : {2, 3, 4, 7, 12}) {
    CAPTURE(scale);
    const Tensor x = uniform_f64({4, 5000}, -1, 1).to(DType::f32);
    CHECK(max_difference(lengthened(x, scale), upsampled(x.to(DType::f64), scale)) <= 0x1p-23);
  }
}

TEST_CASE("the ends and the middle of an odd scale are exact, bit for bit, for any neighbours") {
  const Tensor x = Tensor::from_vector<float>({0.1F, kInfinity, 0.3F}, {1, 3});
  const std::vector<float> y = lengthened(x, 3).to_vector<float>();
  CHECK(y == std::vector<float>{0.1F, 0.1F, kInfinity, kInfinity, kInfinity, kInfinity, kInfinity, 0.3F, 0.3F});
  const std::vector<float> ends = lengthened(Tensor::full({1, 300}, 0.1), 7).to_vector<float>();
  for (const std::size_t j : std::vector<std::size_t>{0, 1, 2, 2097, 2098, 2099}) CHECK(ends[j] == 0.1F);
}

TEST_CASE("the thread count does not change a bit") {
  const int before = num_threads();
  const Tensor x = random_f64({3, 20000}).to(DType::f32), g = random_f64({3, 60000}).to(DType::f32);
  std::vector<float> forward, backward;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Tensor back = Tensor::empty({3, 20000});
    cpu::upsample_linear_backward(back, g, 3);
    if (threads == 1) forward = lengthened(x, 3).to_vector<float>(), backward = back.to_vector<float>();
    CHECK(lengthened(x, 3).to_vector<float>() == forward);
    CHECK(back.to_vector<float>() == backward);
  }
  set_num_threads(before);
}
