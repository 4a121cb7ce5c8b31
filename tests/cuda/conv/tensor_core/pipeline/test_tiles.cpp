#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

#include <doctest/doctest.h>

#include "support/cuda_conv_grid.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

TEST_CASE("tiles are adjacent and cover a row, and begin at sectors if rows are dense") {
  int whole = 0, overlapping = 0;
  for (const ConvProblem& p : dense_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const int positions : {128, 256}) {
        for (const int element_bytes : {2, 4}) {
          tensor_core::Tiling tiling{};
          tiling.columns = 64;
          tensor_core::choose_tiles(gemm, positions, element_bytes, true, tiling);
          CHECK(tiling.position_begin <= gemm.position_begin);
          CHECK(tiling.position_begin + tiling.position_tiles * tiling.position_step >=
                gemm.position_begin + gemm.position_count);
          CHECK(tiling.position_step * gemm.out_stride % tiling.aligned == 0);
          CHECK(8 * tiling.position_step >= 7 * positions);
          whole += tiling.has_whole_sectors() ? 1 : 0;
          overlapping += tiling.position_step < positions ? 1 : 0;
          if (!tensor_core::count_tiles(gemm, 132, tiling)) continue;
          CHECK(tiling.blocks == gemm.N * tiling.position_tiles * tiling.weight_tiles);
          CHECK(tiling.grid % tiling.weight_tiles == 0);  // a block keeps its weights' columns
          CHECK(tiling.grid <= 132);
        }
      }
    }
  }
  CHECK(whole > 0);
  CHECK(overlapping > 0);
}

TEST_CASE("more tiles of columns than multiprocessors are declined") {
  const ConvProblem p = sized({.N = 1, .C_in = 64, .C_out = 64 * 133, .L_in = 512, .K = 3});
  const cuda::TapGemm gemm = cuda::make_tap_gemm(p, ConvDirection::forward);
  tensor_core::Tiling tiling{};
  tiling.columns = 64;
  tensor_core::choose_tiles(gemm, 128, 4, true, tiling);
  CHECK_FALSE(tensor_core::count_tiles(gemm, 132, tiling));
  CHECK(tensor_core::count_tiles(gemm, 133, tiling));
}
