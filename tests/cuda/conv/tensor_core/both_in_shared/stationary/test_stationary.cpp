#include "cuda/conv/tensor_core/both_in_shared/stationary/tiling.hpp"

#include <doctest/doctest.h>

#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

TEST_CASE("stationary's steps fit shared memory and list every product and position") {
  int fitting = 0, whole = 0;
  for (const ConvProblem& p : dense_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::StationaryShape& shape :
           {tensor_core::StationaryShape{128, 2, 4, true, true}, tensor_core::StationaryShape{256, 1, 4, true, false},
            tensor_core::StationaryShape{256, 1, 2, true, true}, tensor_core::StationaryShape{128, 1, 2, false, false}}) {
        const tensor_core::StationaryTiling tiling = tensor_core::make_stationary_tiling(gemm, shape, 132, kSharedOfHopper);
        if (tiling.count == 0) continue;
        ++fitting;
        CHECK(tiling.shared_bytes <= kSharedOfHopper);
        CHECK((tiling.stages >= 2 && tiling.raw_stages >= 2));
        CHECK(tiling.rows * tiling.row_steps >= gemm.rows);
        CHECK(tiling.planes * tiling.plane_steps >= gemm.planes);
        CHECK(tiling.taps == gemm.taps);
        CHECK(tiling.product_count == tiling.taps * tiling.planes * tiling.rows / 16);
        for (int i = 0; i < tiling.product_count; ++i) {
          CHECK((tiling.products[i].source + shape.positions) * 16 <= static_cast<unsigned>(tiling.source_bytes));
          CHECK(tiling.products[i].weights * 16 < static_cast<unsigned>(tiling.weight_bytes));
        }
        // The tiles of each row are adjacent, begin at a sector, and cover the row from before its start to after its end.
        const std::int64_t first = gemm.out_stride * tiling.position_begin + gemm.out_origin;
        const std::int64_t behind = first + gemm.out_stride * tiling.position_tiles * tiling.position_step;
        CHECK(tiling.position_step * gemm.out_stride % tiling.aligned == 0);
        whole += tiling.has_whole_sectors() ? 1 : 0;
        if (tiling.has_whole_sectors()) {
          CHECK((first <= 0 && first % tiling.aligned == 0 && gemm.out_length % tiling.aligned == 0));
        } else if (tiling.aligned > 1) {
          CHECK(first + tiling.aligned - 1 <= 0);
          CHECK(tiling.aligned - 1 + gemm.out_stride * tiling.position_step <= gemm.out_stride * tiling.positions);
        }
        CHECK(tiling.position_begin <= gemm.position_begin);
        CHECK(tiling.position_begin + tiling.position_tiles * tiling.position_step >=
              gemm.position_begin + gemm.position_count);
        CHECK(behind >= gemm.out_length - gemm.out_stride * gemm.out_class_step * gemm.classes);
        CHECK(tiling.grid % tiling.weight_tiles == 0);  // a block keeps its weights' columns
      }
    }
  }
  CHECK((is_reduced() ? fitting > 0 : 0 < whole && whole < fitting));
}
