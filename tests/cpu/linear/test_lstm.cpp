#include "cpu/linear/lstm.hpp"

#include <doctest/doctest.h>

#include "cpu/isa.hpp"
#include "cpu/threads.hpp"
#include "device/backend.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

LstmSteps layer_of(std::int64_t T, std::int64_t N, std::int64_t H, DType dtype) {
  return {.gates = random_f64({T, N, 4 * H}).to(dtype),
          .weight = random_f64({4 * H, H}, 2).to(dtype),
          .input_bias = random_f64({4 * H}, 5).to(dtype),
          .hidden_bias = random_f64({4 * H}, 6).to(dtype),
          .h = random_f64({N, H}, 3).to(dtype),
          .c = random_f64({N, H}, 4).to(dtype),
          .hidden = Tensor::zeros({T, N, H}, {.dtype = dtype}),
          .cells = Tensor::zeros({T, N, H}, {.dtype = dtype})};
}

}  // namespace

TEST_CASE("the kernel agrees with the steps of the other devices, on every instruction set") {
  const Isa before = cpu::current_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!cpu::isa_available(isa)) continue;
    cpu::set_isa(isa);
    for (const std::int64_t H : {1, 3, 8, 33, 70})
      for (const auto& [dtype, bound] : {std::pair{DType::f64, kDoubleSum}, std::pair{DType::f32, kLongFloatSum}}) {
        CAPTURE(H);
        const LstmSteps kernel = layer_of(4, 2, H, dtype), steps = layer_of(4, 2, H, dtype);
        cpu::lstm(kernel);
        cpu_backend().Backend::lstm(std::span(&steps, 1));
        CHECK(max_difference(kernel.gates, steps.gates) <= bound);
        CHECK(max_difference(kernel.hidden, steps.hidden) <= bound);
        CHECK(max_difference(kernel.cells, steps.cells) <= bound);
      }
  }
  cpu::set_isa(before);
}

TEST_CASE("threads do not change a bit") {
  const int before = num_threads();
  const LstmSteps one = layer_of(3, 2, 200, DType::f32), four = layer_of(3, 2, 200, DType::f32);
  set_num_threads(1);
  cpu::lstm(one);
  set_num_threads(4);
  cpu::lstm(four);
  set_num_threads(before);
  CHECK(max_difference(one.hidden, four.hidden) == 0);
  CHECK(max_difference(one.cells, four.cells) == 0);
}
