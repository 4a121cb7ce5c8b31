#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8, kDepth = 16;  // rows in an operand's 16 bytes; rows per wgmma
constexpr int kColumns = 64;             // gemm_m
constexpr int kChunkRows = 32;           // of a raw stage, at most
constexpr std::int64_t kLongest = 0x7fff0000;

int log2_of(std::int64_t power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

/// The columns of a tile: all tiles have the same number.
bool choose_columns(const TapGemm& gemm, TmaTiling& tiling) {
  const std::int64_t tiles = divide_up(gemm.columns, kColumns);
  if (gemm.columns % tiles != 0) return false;
  tiling.columns = static_cast<int>(gemm.columns / tiles);
  tiling.is_half = tiling.columns <= kColumns / 2;
  return true;
}

/// The classes of rows, and where in a tile their windows begin.
bool choose_classes(const TapGemm& gemm, const TmaShape& shape, TmaTiling& tiling) {
  const std::int64_t loads = kTmaLoadMost / std::gcd<std::int64_t>(gemm.source_length, kTmaLoadMost);
  const std::int64_t stores = kTmaStoreMost / std::gcd<std::int64_t>(gemm.out_length, kTmaStoreMost);
  // A tile's first row belongs to the first class.
  if (gemm.rows % loads != 0 || tiling.columns % stores != 0 || gemm.out_channels % stores != 0) return false;
  tiling.load_bits = log2_of(loads);
  tiling.store_bits = log2_of(stores);
  bool is_even = true;
  for (std::int64_t own = 0; own < stores; ++own) {
    const auto place = static_cast<int>((shape.out_place + own * gemm.out_length) % kTmaStoreMost);
    tiling.shift[own] = (kTmaStoreMost - place) % kTmaStoreMost;
    is_even = is_even && tiling.shift[own] % 2 == 0;
  }
  const bool is_plain = loads == 1 && shape.source_place % kTmaLoadMost == 0 && gemm.rows % kDepth == 0;
  // If the low halves of 32 rows are multiplied at a time, rows come in whole groups of 32.
  const bool has_depths = shape.parts == 1 || !tiling.is_half || gemm.rows % (2 * kDepth) == 0;
  const bool is_whole = stores == 1 && tiling.shift[0] == 0 && tiling.columns % 8 == 0 && has_depths;
  tiling.kind = !is_plain || !is_even ? TmaRows::any : is_whole ? TmaRows::whole : TmaRows::pairs;
  return true;
}

void choose_positions(const TapGemm& gemm, const TmaShape& shape, TmaTiling& tiling) {
  tiling.positions = kTmaPositions;
  tiling.aligned = kTmaStoreMost;
  tiling.position_step = tiling.kind == TmaRows::whole ? kTmaPositions : kTmaWidth;
  tiling.position_begin = gemm.position_begin;
  tiling.position_tiles = divide_up(gemm.position_count, tiling.position_step);
  const std::int64_t first = gemm.position_begin + gemm.source_origin;
  for (int own = 0; own < 1 << tiling.load_bits; ++own) {
    const auto place = first + (shape.source_place + own * gemm.source_length) % kTmaLoadMost;
    tiling.lead[own] = static_cast<int>((place % kTmaLoadMost + kTmaLoadMost) % kTmaLoadMost);
  }
}

/// Rows of a chunk: all, or a part of them that is whole steps of gemm_k.
int choose_chunk(std::int64_t rows) {
  if (rows <= kChunkRows) return static_cast<int>(rows);
  return rows % kChunkRows == 0 ? kChunkRows : rows % kDepth == 0 ? kDepth : 0;
}

/// The sizes of a tile. False if it has too many depths.
bool measure(const TapGemm& gemm, const TmaShape& shape, TmaTiling& tiling) {
  const std::int64_t rows = divide_up(gemm.rows, kDepth) * kDepth, depths = rows / kDepth * gemm.taps;
  if (depths * (shape.parts == 2 && !tiling.is_half ? 2 : 1) > kTmaDepthsMost) return false;
  const std::int64_t halo = (gemm.taps - 1) * gemm.tap_step;
  tiling.chunk_rows = choose_chunk(gemm.rows);
  if (halo > 128 || tiling.chunk_rows == 0) return false;
  tiling.depths = static_cast<int>(depths);
  tiling.rows = static_cast<int>(rows);
  tiling.planes = 1;
  tiling.taps = static_cast<int>(gemm.taps);
  tiling.row_steps = tiling.plane_steps = tiling.count = 1;
  tiling.halo = static_cast<int>(halo);
  const int window = kTmaPositions + tiling.halo, lead = *std::max_element(tiling.lead, tiling.lead + kTmaLoadMost);
  tiling.tile = make_tile(gemm.source_length, 1, 0, tiling.rows, 1, window, kVector);
  tiling.source_bytes = static_cast<int>(divide_up(shape.parts * tiling.tile.items * 16, 128) * 128);
  tiling.chunks = static_cast<int>(gemm.rows / tiling.chunk_rows);
  tiling.chunk_blocks = static_cast<int>(divide_up(tiling.chunk_rows, kDepth) * kDepth / kVector);
  if (window + lead > kTmaPitch) tiling.kind = TmaRows::any;
  tiling.raw_pitch = tiling.kind == TmaRows::any ? static_cast<int>(divide_up(window + lead, 4) * 4) : kTmaPitch;
  if (tiling.raw_pitch > 256) return false;
  // A box begins at a multiple of 128 bytes.
  tiling.raw_class_bytes =
      static_cast<int>(divide_up((tiling.chunk_rows >> tiling.load_bits) * tiling.raw_pitch * 4, 128) * 128);
  tiling.raw_bytes = tiling.raw_class_bytes << tiling.load_bits;
  tiling.weight_bytes = shape.parts * tiling.taps * (tiling.rows / kVector) * tiling.columns * 16;
  tiling.staging_bytes = 4 * (tiling.kind == TmaRows::whole ? tiling.columns * kTmaPositions
                                                            : (tiling.is_half ? kColumns / 2 : kColumns) * kTmaWidth);
  // If sums of half the steps wait in it, it has room for all of them.
  if (shape.parts == 2 && depths > kTmaWholeDepths)
    tiling.staging_bytes = std::max(tiling.staging_bytes, kColumns / 2 * kTmaPositions * 4);
  return true;
}

/// Both pipelines have the same number of raw stages.
bool divide_memory(int shared_limit, TmaTiling& tiling) {
  const int available = shared_limit - kTmaFixedBytes - kPairs * tiling.staging_bytes;
  const auto raw = [&](int stages) { return (available - stages * tiling.source_bytes) / (kPairs * tiling.raw_bytes); };
  tiling.stages = kTmaTurns;
  while (tiling.stages > kPairs && raw(tiling.stages) < 2) --tiling.stages;
  // A pipeline that takes no more tiles cannot hand its stages over.
  if (tiling.is_dynamic) tiling.stages -= tiling.stages % kPairs;
  if (raw(tiling.stages) < 1) return false;
  tiling.raw_stages = kPairs * std::min(kTmaRingMost / kPairs, raw(tiling.stages));
  tiling.shared_bytes = kTmaFixedBytes + kPairs * tiling.staging_bytes + tiling.stages * tiling.source_bytes +
                        tiling.raw_stages * tiling.raw_bytes;
  return true;
}

/// The products in the order of packed weights, [tap][part][block of rows].
void list_products(const TapGemm& gemm, const TmaShape& shape, TmaTiling& tiling) {
  const int groups = tiling.rows / kDepth, blocks = tiling.rows / kVector;
  int count = 0;
  for (int tap = 0; tap < tiling.taps; ++tap) {
    for (int group = 0; group < groups; ++group) {
      const int weights = (tap * shape.parts * blocks + 2 * group) * tiling.columns;
      const std::int64_t source = 2 * group * tiling.tile.window + tap * gemm.tap_step;
      tiling.products[count++] = {static_cast<std::uint32_t>(weights), static_cast<std::uint32_t>(source)};
    }
  }
}

}  // namespace

TmaTiling make_tma_tiling(const TapGemm& gemm, const TmaShape& shape, int sm_count, int shared_limit) {
  const bool has_strides = gemm.source_stride != 1 || gemm.out_stride != 1 || gemm.planes != 1 || gemm.classes != 1;
  if (has_strides || gemm.source_length > kLongest || gemm.out_length > kLongest ||
      gemm.N * gemm.G * std::max(gemm.rows, gemm.out_channels) > kLongest)
    return {};
  TmaTiling tiling{};
  if (!choose_columns(gemm, tiling) || !choose_classes(gemm, shape, tiling)) return {};
  choose_positions(gemm, shape, tiling);
  const TmaRows kind = tiling.kind;
  if (!measure(gemm, shape, tiling)) return {};
  if (tiling.kind != kind) {
    choose_positions(gemm, shape, tiling);
    if (!measure(gemm, shape, tiling)) return {};
  }
  tiling.is_dynamic = tiling.kind != TmaRows::any && writes_more(gemm);
  if (!divide_memory(shared_limit, tiling) || !count_tiles(gemm, sm_count, tiling)) return {};
  list_products(gemm, shape, tiling);
  const std::int64_t numbers = gemm.rows * gemm.source_length + gemm.out_channels * gemm.out_length;
  tiling.is_streamed = gemm.N * gemm.G * numbers * static_cast<std::int64_t>(sizeof(float)) >= kTmaStreamed;
  return tiling;
}

}  // namespace polyphase::cuda::tensor_core
