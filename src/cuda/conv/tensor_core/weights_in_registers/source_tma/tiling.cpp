#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

#include <algorithm>
#include <numeric>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8, kDepth = 16;  // rows of an operand's 16 bytes, of one wgmma
constexpr int kColumns = 64;             // gemm_m
constexpr int kChunkRows = 32;           // of a raw stage, at most
constexpr std::int64_t kLongest = 0x7fff0000;

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }
int log2_of(std::int64_t power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

/// Columns of a tile: all tiles have equally many.
bool choose_columns(const TapGemm& form, BoxesSteps& steps) {
  const std::int64_t tiles = pieces(form.columns, kColumns);
  if (form.columns % tiles != 0) return false;
  steps.columns = static_cast<int>(form.columns / tiles);
  steps.is_half = steps.columns <= kColumns / 2;
  return true;
}

/// Classes of rows, and where in a tile their windows begin.
bool choose_classes(const TapGemm& form, const BoxesShape& shape, BoxesSteps& steps) {
  const std::int64_t loads = kBoxesLoadMost / std::gcd<std::int64_t>(form.source_length, kBoxesLoadMost);
  const std::int64_t stores = kBoxesStoreMost / std::gcd<std::int64_t>(form.out_length, kBoxesStoreMost);
  // A tile's first row is of the first class.
  if (form.rows % loads != 0 || steps.columns % stores != 0 || form.out_channels % stores != 0) return false;
  steps.load_bits = log2_of(loads);
  steps.store_bits = log2_of(stores);
  bool is_even = true;
  for (std::int64_t own = 0; own < stores; ++own) {
    const auto place = static_cast<int>((shape.out_place + own * form.out_length) % kBoxesStoreMost);
    steps.shift[own] = (kBoxesStoreMost - place) % kBoxesStoreMost;
    is_even = is_even && steps.shift[own] % 2 == 0;
  }
  const bool is_plain = loads == 1 && shape.source_place % kBoxesLoadMost == 0 && form.rows % kDepth == 0;
  // Where the low halves of 32 rows are multiplied at a time, there are whole 32 of them.
  const bool has_depths = shape.parts == 1 || !steps.is_half || form.rows % (2 * kDepth) == 0;
  const bool is_whole = stores == 1 && steps.shift[0] == 0 && steps.columns % 8 == 0 && has_depths;
  steps.kind = !is_plain || !is_even ? BoxesRows::any : is_whole ? BoxesRows::whole : BoxesRows::pairs;
  return true;
}

void choose_positions(const TapGemm& form, const BoxesShape& shape, BoxesSteps& steps) {
  steps.positions = kBoxesPositions;
  steps.aligned = kBoxesStoreMost;
  steps.position_step = steps.kind == BoxesRows::whole ? kBoxesPositions : kBoxesWidth;
  steps.position_begin = form.position_begin;
  steps.position_tiles = pieces(form.position_count, steps.position_step);
  const std::int64_t first = form.position_begin + form.source_origin;
  for (int own = 0; own < 1 << steps.load_bits; ++own) {
    const auto place = first + (shape.source_place + own * form.source_length) % kBoxesLoadMost;
    steps.lead[own] = static_cast<int>((place % kBoxesLoadMost + kBoxesLoadMost) % kBoxesLoadMost);
  }
}

/// Rows of a chunk: all, or a part of them that is whole steps of gemm_k.
int choose_chunk(std::int64_t rows) {
  if (rows <= kChunkRows) return static_cast<int>(rows);
  return rows % kChunkRows == 0 ? kChunkRows : rows % kDepth == 0 ? kDepth : 0;
}

/// Sizes of a tile. False where its depths are too many.
bool measure(const TapGemm& form, const BoxesShape& shape, BoxesSteps& steps) {
  const std::int64_t rows = pieces(form.rows, kDepth) * kDepth, depths = rows / kDepth * form.taps;
  if (depths * (shape.parts == 2 && !steps.is_half ? 2 : 1) > kBoxesDepthsMost) return false;
  const std::int64_t halo = (form.taps - 1) * form.tap_step;
  steps.chunk_rows = choose_chunk(form.rows);
  if (halo > 128 || steps.chunk_rows == 0) return false;
  steps.depths = static_cast<int>(depths);
  steps.rows = static_cast<int>(rows);
  steps.planes = 1;
  steps.taps = static_cast<int>(form.taps);
  steps.row_steps = steps.plane_steps = steps.tap_steps = steps.count = 1;
  steps.weight_buffers = 1;
  steps.resident = true;
  steps.halo = static_cast<int>(halo);
  const int window = kBoxesPositions + steps.halo, lead = *std::max_element(steps.lead, steps.lead + kBoxesLoadMost);
  steps.tile = make_tile(form.source_length, 1, 0, steps.rows, 1, window, kVector);
  steps.source_bytes = static_cast<int>(pieces(shape.parts * steps.tile.items * 16, 128) * 128);
  steps.chunks = static_cast<int>(form.rows / steps.chunk_rows);
  steps.chunk_blocks = static_cast<int>(pieces(steps.chunk_rows, kDepth) * kDepth / kVector);
  if (window + lead > kBoxesPitch) steps.kind = BoxesRows::any;
  steps.raw_pitch = steps.kind == BoxesRows::any ? static_cast<int>(pieces(window + lead, 4) * 4) : kBoxesPitch;
  if (steps.raw_pitch > 256) return false;
  // A box begins at a multiple of 128 bytes.
  steps.raw_class_bytes = static_cast<int>(pieces((steps.chunk_rows >> steps.load_bits) * steps.raw_pitch * 4, 128) * 128);
  steps.raw_bytes = steps.raw_class_bytes << steps.load_bits;
  steps.weight_bytes = shape.parts * steps.taps * (steps.rows / kVector) * steps.columns * 16;
  steps.staging_bytes = 4 * (steps.kind == BoxesRows::whole ? steps.columns * kBoxesPositions
                                                            : (steps.is_half ? kColumns / 2 : kColumns) * kBoxesWidth);
  return true;
}

/// Each pipeline has as many raw stages as the other.
bool divide_memory(int shared_limit, BoxesSteps& steps) {
  const int available = shared_limit - kBoxesFixedBytes - kPairs * steps.staging_bytes;
  const auto raw = [&](int stages) { return (available - stages * steps.source_bytes) / (kPairs * steps.raw_bytes); };
  steps.stages = kBoxesTurns;
  while (steps.stages > kPairs && raw(steps.stages) < 2) --steps.stages;
  // A pipeline that draws nothing any more leaves its stages to nobody.
  if (steps.is_drawn) steps.stages -= steps.stages % kPairs;
  if (raw(steps.stages) < 1) return false;
  steps.raw_stages = kPairs * std::min(kBoxesRingMost / kPairs, raw(steps.stages));
  steps.shared_bytes =
      kBoxesFixedBytes + kPairs * steps.staging_bytes + steps.stages * steps.source_bytes + steps.raw_stages * steps.raw_bytes;
  return true;
}

/// In the order of packed weights, [tap][part][block of rows].
void list_products(const TapGemm& form, const BoxesShape& shape, BoxesSteps& steps) {
  const int groups = steps.rows / kDepth, blocks = steps.rows / kVector;
  int count = 0;
  for (int tap = 0; tap < steps.taps; ++tap) {
    for (int group = 0; group < groups; ++group) {
      const int weights = (tap * shape.parts * blocks + 2 * group) * steps.columns;
      const std::int64_t source = 2 * group * steps.tile.window + tap * form.tap_step;
      steps.products[count++] = {static_cast<std::uint32_t>(weights), static_cast<std::uint32_t>(source)};
    }
  }
}

}  // namespace

BoxesSteps make_boxes_steps(const TapGemm& form, const BoxesShape& shape, int sm_count, int shared_limit) {
  const bool has_strides = form.source_stride != 1 || form.out_stride != 1 || form.planes != 1 || form.classes != 1;
  if (has_strides || form.source_length > kLongest || form.out_length > kLongest ||
      form.N * form.G * std::max(form.rows, form.out_channels) > kLongest)
    return {};
  BoxesSteps steps{};
  if (!choose_columns(form, steps) || !choose_classes(form, shape, steps)) return {};
  choose_positions(form, shape, steps);
  const BoxesRows kind = steps.kind;
  if (!measure(form, shape, steps)) return {};
  if (steps.kind != kind) {
    choose_positions(form, shape, steps);
    if (!measure(form, shape, steps)) return {};
  }
  steps.is_drawn = steps.kind != BoxesRows::any && writes_more(form);
  if (!divide_memory(shared_limit, steps) || !count_tiles(form, sm_count, steps)) return {};
  list_products(form, shape, steps);
  const std::int64_t numbers = form.rows * form.source_length + form.out_channels * form.out_length;
  steps.is_streamed = form.N * form.G * numbers * static_cast<std::int64_t>(sizeof(float)) >= kBoxesStreamed;
  return steps;
}

}  // namespace polyphase::cuda::tensor_core
