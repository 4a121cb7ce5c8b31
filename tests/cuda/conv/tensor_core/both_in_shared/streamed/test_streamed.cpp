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
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::TileShape& tile :
           {tensor_core::TileShape{128, 128, 2, 8, 16}, tensor_core::TileShape{64, 256, 2, 8, 16},
            tensor_core::TileShape{128, 256, 1, 4, 8}, tensor_core::TileShape{64, 512, 1, 8, 16}}) {
        const tensor_core::Steps steps = tensor_core::make_steps(form, tile, 132, kSharedOfHopper);
        REQUIRE(steps.count > 0);
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK(steps.stages >= 2);
        CHECK(steps.rows * steps.row_steps >= form.rows);
        CHECK(steps.planes * steps.plane_steps >= form.planes);
        CHECK(steps.taps * steps.tap_steps >= form.taps);
        CHECK(steps.rows % tile.depth == 0);
        CHECK(steps.tile.window >= tile.positions + (steps.taps - 1) * form.tap_step);
        CHECK(steps.blocks == p.N * steps.weight_tiles * steps.position_tiles);
        CHECK((!steps.resident || steps.grid % steps.weight_tiles == 0));  // a block keeps its columns
      }
    }
  }
}
