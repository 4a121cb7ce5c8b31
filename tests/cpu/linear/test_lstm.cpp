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

struct Pass {
  Tensor gates, weight, hidden, cells;
  Pass(std::int64_t T, std::int64_t N, std::int64_t H, DType dtype)
      : gates(random_f64({T, N, 4 * H}).to(dtype)),
        weight(random_f64({4 * H, H}, 2).to(dtype)),
        hidden(random_f64({T + 1, N, H}, 3).to(dtype)),
        cells(random_f64({T + 1, N, H}, 4).to(dtype)) {}
};

}  // namespace

TEST_CASE("the kernel agrees with the steps of the other devices, on every instruction set") {
  const Isa before = cpu::current_isa();
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (!cpu::isa_available(isa)) continue;
    cpu::set_isa(isa);
    for (const std::int64_t H : {1, 3, 8, 33, 70})
      for (const auto& [dtype, bound] : {std::pair{DType::f64, kDoubleSum}, std::pair{DType::f32, kLongFloatSum}}) {
        CAPTURE(H);
        const Pass kernel(4, 2, H, dtype), steps(4, 2, H, dtype);
        cpu::lstm(kernel.gates, kernel.weight, kernel.hidden, kernel.cells);
        cpu_backend().Backend::lstm(steps.gates, steps.weight, steps.hidden, steps.cells);
        CHECK(max_difference(kernel.gates, steps.gates) <= bound);
        CHECK(max_difference(kernel.hidden, steps.hidden) <= bound);
        CHECK(max_difference(kernel.cells, steps.cells) <= bound);
      }
  }
  cpu::set_isa(before);
}

TEST_CASE("threads do not change a bit") {
  const int before = num_threads();
  const Pass one(3, 2, 200, DType::f32), four(3, 2, 200, DType::f32);
  set_num_threads(1);
  cpu::lstm(one.gates, one.weight, one.hidden, one.cells);
  set_num_threads(4);
  cpu::lstm(four.gates, four.weight, four.hidden, four.cells);
  set_num_threads(before);
  CHECK(max_difference(one.hidden, four.hidden) == 0);
  CHECK(max_difference(one.cells, four.cells) == 0);
}
