#include "cuda/conv/tensor_core/both_in_shared/streamed/tiling.hpp"

#include <doctest/doctest.h>

#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

TEST_CASE("steps of every problem fit shared memory and cover the reduction") {
  for (const ConvProblem& p : dense_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::TileShape& tile :
           {tensor_core::TileShape{128, 128, 2, 8, 16}, tensor_core::TileShape{64, 256, 2, 8, 16},
            tensor_core::TileShape{128, 256, 1, 4, 8}, tensor_core::TileShape{64, 512, 1, 8, 16}}) {
        const tensor_core::Tiling tiling = tensor_core::make_tiling(gemm, tile, 132, kSharedOfHopper);
        REQUIRE(tiling.count > 0);
        CHECK(tiling.shared_bytes <= kSharedOfHopper);
        CHECK(tiling.stages >= 2);
        CHECK(tiling.rows * tiling.row_steps >= gemm.rows);
        CHECK(tiling.planes * tiling.plane_steps >= gemm.planes);
        CHECK(tiling.taps * tiling.tap_steps >= gemm.taps);
        CHECK(tiling.rows % tile.depth == 0);
        CHECK(tiling.tile.window >= tile.positions + (tiling.taps - 1) * gemm.tap_step);
        CHECK(tiling.blocks == p.N * tiling.weight_tiles * tiling.position_tiles);
        CHECK((!tiling.stationary || tiling.grid % tiling.weight_tiles == 0));  // a block keeps its columns
      }
    }
  }
}
