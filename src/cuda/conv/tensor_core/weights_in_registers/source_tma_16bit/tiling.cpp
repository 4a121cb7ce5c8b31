#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/tiling.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "cuda/conv/rounding.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8, kSector = 16;  // elements
constexpr int kFixedBytes = 128 + 512;    // alignment; zeros and barriers
constexpr int kSkewMost = 24;             // elements of a tile that rows with different offsets may cost
constexpr std::int64_t kShortest = 64;
constexpr std::int64_t kLongest = 1 << 30;       // elements per row
constexpr std::int64_t kMostTiles = 0x40000000;  // limit for numbers divided by FastDivide

/// Each row of the source begins `skew` elements later in a vector than the one before. The memory between a map's last number
/// and the end of the tensor is never read.
Tma16Rows source_rows(std::int64_t length) {
  const auto skew = static_cast<int>(length % kVector);
  const int classes = kVector / std::gcd(kVector, skew);
  return {classes, classes, 1, skew};
}

/// Rows of the output from sectors on, as many in one map as cost little.
Tma16Rows out_rows(std::int64_t length) {
  auto skew = static_cast<int>(length % kSector);
  if (skew > kSector / 2) skew -= kSector;
  const int classes = kSector / std::gcd(kSector, skew);
  int group = classes;
  while ((group - 1) * std::abs(skew) > kSkewMost) group /= 2;
  return {classes, group, classes / group, skew};
}

bool is_of_this_kind(const TapGemm& gemm) {
  if (gemm.G != 1 || gemm.N == 0 || gemm.planes != 1 || gemm.classes != 1 || gemm.source_stride != 1) return false;
  if (gemm.out_stride > 2 || gemm.columns > kTma16Columns || gemm.rows % 16 != 0) return false;
  if (std::min(gemm.source_length, gemm.out_length) < kShortest) return false;
  return gemm.source_length <= kLongest && gemm.out_length <= kLongest && gemm.rows * gemm.taps <= 16 * kTma16DepthsMost;
}

/// Tile 0 begins where the windows of all rows use the least of it; no tile begins after the row's end.
bool place_windows(const TapGemm& gemm, const Tma16Place& place, Tma16Tiling& tiling) {
  const Tma16Rows& out = tiling.out;
  const int spread = std::max(0, (out.group - 1) * out.skew);
  for (int map = 0; map < out.maps; ++map)
    tiling.out_offset[map] = static_cast<int>((place.out + map * out.group * (gemm.out_length % kSector)) % kSector);
  const std::int64_t last = gemm.position_begin;
  int best = -1;
  for (int before = 0; before < 64; ++before) {
    const std::int64_t first = gemm.out_stride * (last - before) + gemm.out_origin;
    int least = kSector, most = 0, shifts[kTma16MapsMost];
    for (int map = 0; map < out.maps; ++map) {
      const std::int64_t from = first + tiling.out_offset[map] + spread;
      const auto shift = static_cast<int>(ceil_to(from, kSector) - from);
      shifts[map] = shift + spread;
      least = std::min(least, shift);
      most = std::max(most, shift + (out.group - 1) * std::abs(out.skew));
    }
    if (first + most > 0 || (best >= 0 && most >= best)) continue;
    best = most;
    tiling.out_first = first;
    tiling.least_shift = least;
    tiling.most_shift = most;
    std::copy_n(shifts, out.maps, tiling.window_shift);
  }
  if (best < 0) return false;
  // Odd multiples of 16 elements: staged rows are then in different banks.
  const int room = tiling.stride * tiling.positions - tiling.most_shift;
  tiling.window = (room - kSector) / (2 * kSector) * 2 * kSector + kSector;
  tiling.is_even = true;
  for (int c = 0; c < out.classes; ++c) tiling.is_even = tiling.is_even && tiling.shift_of(c) % 2 == 0;
  return room >= 4 * kSector;
}

bool place_source(const TapGemm& gemm, const Tma16Place& place, Tma16Tiling& tiling) {
  Tma16Rows& source = tiling.source;
  if (tiling.rows % (8 * source.classes) != 0) return false;
  const std::int64_t position = (tiling.out_first - gemm.out_origin) / tiling.stride;
  const std::int64_t halo = (gemm.taps - 1) * gemm.tap_step;
  if (halo > 256) return false;
  const int late = (source.group - 1) * source.skew;
  const std::int64_t from = position + gemm.source_origin + place.source;
  tiling.source_offset = place.source;
  tiling.source_first = floor_to(from, kVector);
  const auto lead = static_cast<int>(from - tiling.source_first);
  tiling.first_slot = lead + late;
  // Odd multiples of a vector: rows are in different banks.
  const auto width = static_cast<int>(lead + late + tiling.positions + halo);
  tiling.pitch = static_cast<int>(ceil_to(width - kVector, 2 * kVector)) + kVector;
  tiling.slots = tiling.pitch + late;
  tiling.raw_bytes = static_cast<int>(ceil_to(std::int64_t{2} * tiling.rows * tiling.pitch, 128));
  tiling.tile_bytes = static_cast<int>(ceil_to(std::int64_t{2} * tiling.rows * tiling.slots, 128));
  // Box dimensions are at most 256 units, which are four bytes if rows are whole words.
  const bool has_words = gemm.source_length % 2 == 0 && place.source % 2 == 0;
  return tiling.pitch <= (has_words ? 512 : 256);
}

bool divide_memory(int shared_limit, Tma16Tiling& tiling) {
  tiling.staging_bytes = static_cast<int>(ceil_to(std::int64_t{2} * tiling.columns * tiling.window, 128));
  const int left = shared_limit - kFixedBytes - kTma16Consumers * tiling.staging_bytes;
  tiling.stages = 3;
  if (left < 3 * tiling.tile_bytes + 2 * tiling.raw_bytes) tiling.stages = 2;
  tiling.raw_stages = std::min((left - tiling.stages * tiling.tile_bytes) / tiling.raw_bytes, kTma16RingMost);
  if (left < tiling.stages * tiling.tile_bytes || tiling.raw_stages < 2) return false;
  tiling.shared_bytes = shared_limit - left + tiling.stages * tiling.tile_bytes + tiling.raw_stages * tiling.raw_bytes;
  return true;
}

/// A product: two blocks of rows at one tap.
void list_products(const TapGemm& gemm, Tma16Tiling& tiling) {
  int count = 0;
  for (int tap = 0; tap < gemm.taps; ++tap) {
    for (int pair = 0; pair < tiling.rows / 16; ++pair)
      tiling.product[count++] =
          static_cast<std::uint32_t>(2 * pair * tiling.slots + tiling.first_slot + tap * static_cast<int>(gemm.tap_step));
  }
}

}  // namespace

Tma16Tiling make_tma16_tiling(const TapGemm& gemm, Tma16Place place, int sm_count, int shared_limit) {
  if (!is_of_this_kind(gemm)) return {};
  Tma16Tiling tiling{};
  tiling.rows = static_cast<int>(gemm.rows);
  tiling.columns = static_cast<int>(gemm.columns);
  tiling.stride = static_cast<int>(gemm.out_stride);
  const auto depths = static_cast<int>(gemm.rows / 16 * gemm.taps);
  tiling.kernel_depths = depths <= 6 ? 6 : depths <= 10 ? 10 : kTma16DepthsMost;
  tiling.positions = depths <= 10 ? 256 : 208;
  tiling.source = source_rows(gemm.source_length);
  tiling.out = out_rows(gemm.out_length);
  if (tiling.out.maps > kTma16MapsMost || tiling.columns % tiling.out.classes != 0) return {};
  if (!place_windows(gemm, place, tiling) || !place_source(gemm, place, tiling) || !divide_memory(shared_limit, tiling))
    return {};
  list_products(gemm, tiling);
  tiling.tiles_of_row = divide_up(gemm.out_length - tiling.out_first - tiling.least_shift, tiling.window);
  tiling.tiles = gemm.N * tiling.tiles_of_row;
  if (tiling.tiles >= kMostTiles) return {};
  tiling.by_tiles = FastDivide(static_cast<std::uint32_t>(tiling.tiles_of_row));
  tiling.grid = static_cast<unsigned>(std::min<std::int64_t>(sm_count, tiling.tiles));
  tiling.packed_bytes = std::int64_t{depths} * 128 * 16;
  tiling.depths = depths;
  return tiling;
}

}  // namespace polyphase::cuda::tensor_core
