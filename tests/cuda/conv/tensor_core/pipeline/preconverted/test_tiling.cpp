#include "cuda/conv/tensor_core/pipeline/preconverted/tiling.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "support/cuda_conv_grid.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

constexpr ConvDirection kGathers[] = {ConvDirection::forward, ConvDirection::dgrad};

/// Near the tile sizes.
const std::vector<std::int64_t> kLengths = {1, 2, 31, 64, 65, 95, 96, 127, 128, 129, 160, 255, 256, 257, 513};

}  // namespace

TEST_CASE("steps fit shared memory, cover the reduction, and every position once") {
  for (const ConvProblem& p : thinned(random_gathers(11, kLengths, false))) {
    for (const ConvDirection direction : kGathers) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const int parts : {1, 2}) {
        for (const tensor_core::PreconvertedShape& shape : tensor_core::preconverted_shapes(parts)) {
          for (const int slices : {1, 3}) {
            const tensor_core::PreconvertedTiling tiling =
                tensor_core::make_preconverted_tiling(gemm, shape, slices, 132, kSharedOfHopper);
            REQUIRE(tiling.count > 0);
            CHECK(tiling.shared_bytes <= kSharedOfHopper);
            CHECK(tiling.stages >= 2);
            CHECK(tensor_core::kPreconvertedBlocks * tensor_core::kPreconvertedRows * tiling.row_steps >= gemm.rows);
            CHECK(tiling.planes * tiling.plane_steps >= tiling.source.planes);
            CHECK(tiling.source.planes * tiling.taps * tiling.tap_steps >= gemm.planes * gemm.taps);
            CHECK(tiling.slices <= slices);
            CHECK(tiling.slices * tiling.row_steps_of_slice >= tiling.row_steps);
            CHECK((tiling.slices - 1) * tiling.row_steps_of_slice < tiling.row_steps);
            CHECK(tiling.usable % (tiling.interleaved ? gemm.classes : 1) == 0);
            CHECK(tiling.column_tiles * tiling.tile_columns / tensor_core::kPreconvertedSubtile * tiling.usable >=
                  gemm.columns);
            // The tiles contain all samples' positions, and no two samples share one.
            CHECK(tiling.source.sample_pitch >= tiling.sample_positions);
            CHECK((p.N - 1) * tiling.source.sample_pitch + tiling.sample_positions <=
                  tiling.position_tiles * tiling.tile_positions);
            // The phases outside of the positions are outside of the row.
            const std::int64_t before = tiling.source.position_begin - 1;
            const std::int64_t farthest =
                gemm.out_stride * before + (gemm.phase_classes - 1) * gemm.out_class_step + gemm.out_gcd - 1 + gemm.out_origin;
            CHECK(farthest < 0);
            CHECK(gemm.out_stride * (tiling.source.position_begin + tiling.sample_positions) + gemm.out_origin >=
                  gemm.out_length);
          }
        }
      }
    }
  }
}
