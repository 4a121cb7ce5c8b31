#include "cuda/conv/tensor_core/recompute/by_tile/tiling.hpp"

#include <doctest/doctest.h>

#include "by_tile_problems.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

TEST_CASE("by_tile: tilings hold all units and all steps in the memory that they name") {
  for (const ConvProblem& p : by_tile_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const int parts : {1, 2}) {
        const auto tiling = tensor_core::make_by_tile_tiling(gemm, parts, kSmsOfHopper, kSharedOfHopper, std::int64_t{1} << 34);
        REQUIRE(tiling);
        CHECK(tiling->units_of_sample * tiling->unit_positions >= gemm.position_count);
        CHECK(tiling->units == gemm.N * gemm.G * tiling->units_of_sample);
        CHECK(tiling->places >= 1);
        CHECK(tiling->places <= tiling->units);
        CHECK(tiling->shared_bytes + tensor_core::kByTileSharedBytes <= kSharedOfHopper);
        for (int form = 0; form < tensor_core::kForms; ++form)
          CHECK(tiling->row_steps[form] * tensor_core::rows_of_step(form) >= gemm.rows);
        const tensor_core::ByTileMemory memory(gemm, *tiling);
        CHECK(memory.marks >= memory.ready + tiling->units * 4);
        CHECK(memory.list >= memory.zeros);
        CHECK(memory.units % 256 == 0);
        CHECK_FALSE(tensor_core::make_by_tile_tiling(gemm, parts, kSmsOfHopper, kSharedOfHopper, memory.bytes - 1));
      }
    }
  }
}
