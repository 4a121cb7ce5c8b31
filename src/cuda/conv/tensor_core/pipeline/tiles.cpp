#include "cuda/conv/tensor_core/pipeline/tiles.hpp"

#include <algorithm>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Sets tiles without overlap if rows are whole sectors and tiles can begin at one; else returns false.
bool choose_whole_sectors(const TapGemm& gemm, Tiling& tiling) {
  if (gemm.out_length % tiling.aligned != 0) return false;
  for (int before = 0; before < tiling.aligned; ++before) {
    const std::int64_t begin = gemm.position_begin - before;
    if ((gemm.out_stride * begin + gemm.out_origin) % tiling.aligned != 0) continue;
    tiling.position_begin = begin;
    tiling.position_step = tiling.positions;
    tiling.position_tiles = divide_up(gemm.position_count + before, tiling.positions);
    return true;
  }
  return false;
}

}  // namespace

void choose_tiles(const TapGemm& gemm, int positions, int element_bytes, bool is_sector_aligned, Tiling& tiling) {
  tiling.positions = positions;
  const bool is_dense = gemm.out_stride == 1 || gemm.phase_classes == 1 || gemm.out_class_step == 1;
  tiling.aligned = is_dense ? 32 / element_bytes : 1;
  if (is_dense && is_sector_aligned && choose_whole_sectors(gemm, tiling)) return;
  auto overlap = static_cast<int>(divide_up(tiling.aligned - 1, gemm.out_stride));
  int step = positions - overlap;
  while (step > 0 && step * gemm.out_stride % tiling.aligned != 0) --step;
  if (step * 8 < positions * 7) {
    step = positions;
    tiling.aligned = 1;
    overlap = 0;
  }
  tiling.position_step = step;
  tiling.position_begin = gemm.position_begin - overlap;
  tiling.position_tiles = divide_up(gemm.position_count + overlap, step);
}

bool count_tiles(const TapGemm& gemm, int sm_count, Tiling& tiling) {
  const std::int64_t column_tiles = divide_up(gemm.columns, tiling.columns), weight_tiles = column_tiles * gemm.G;
  const std::int64_t above = gemm.N * tiling.position_tiles;
  if (weight_tiles > sm_count || above * weight_tiles > 0x7fffffff) return false;
  tiling.weight_tiles = weight_tiles;
  tiling.blocks = above * weight_tiles;
  tiling.grid = static_cast<unsigned>(std::min<std::int64_t>(sm_count / weight_tiles, divide_up(above, kPairs)) * weight_tiles);
  tiling.by_weight_tiles = FastDivide(static_cast<std::uint32_t>(weight_tiles));
  tiling.by_position_tiles = FastDivide(static_cast<std::uint32_t>(tiling.position_tiles));
  tiling.by_column_tiles = FastDivide(static_cast<std::uint32_t>(column_tiles));
  tiling.by_classes = FastDivide(static_cast<std::uint32_t>(gemm.classes));
  tiling.by_gcd = FastDivide(static_cast<std::uint32_t>(gemm.out_gcd));
  tiling.by_stride = FastDivide(static_cast<std::uint32_t>(gemm.out_stride));
  return true;
}

}  // namespace polyphase::cuda::tensor_core
