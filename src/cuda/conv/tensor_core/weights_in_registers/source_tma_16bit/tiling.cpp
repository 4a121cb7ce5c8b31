#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/tiling.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace polyphase::cuda::tensor_core {
namespace {

constexpr int kVector = 8, kSector = 16;  // elements
constexpr int kFixedBytes = 128 + 512;    // alignment; zeros and barriers
constexpr int kSkewMost = 24;             // elements of a tile that rows which do not begin alike may cost
constexpr std::int64_t kShortest = 64;
constexpr std::int64_t kLongest = 1 << 30;       // elements of a row
constexpr std::int64_t kMostTiles = 0x40000000;  // of what is divided by FastDivide

std::int64_t pieces(std::int64_t size, std::int64_t piece) { return (size + piece - 1) / piece; }
std::int64_t floor_to(std::int64_t a, std::int64_t b) { return (a >= 0 ? a / b : -((-a + b - 1) / b)) * b; }
std::int64_t ceil_to(std::int64_t a, std::int64_t b) { return -floor_to(-a, b); }

/// Rows of the source begin `skew` elements behind a vector, each later than the one before: what lies between a map's last
/// number and the end of the tensor is never read.
TurnedRows source_rows(std::int64_t length) {
  const auto skew = static_cast<int>(length % kVector);
  const int classes = kVector / std::gcd(kVector, skew);
  return {classes, classes, 1, skew};
}

/// Rows of the output from sectors on, as many in one map as cost little.
TurnedRows out_rows(std::int64_t length) {
  auto skew = static_cast<int>(length % kSector);
  if (skew > kSector / 2) skew -= kSector;
  const int classes = kSector / std::gcd(kSector, skew);
  int group = classes;
  while ((group - 1) * std::abs(skew) > kSkewMost) group /= 2;
  return {classes, group, classes / group, skew};
}

bool is_of_this_kind(const TapGemm& form) {
  if (form.G != 1 || form.N == 0 || form.planes != 1 || form.classes != 1 || form.source_stride != 1) return false;
  if (form.out_stride > 2 || form.columns > kTurnedColumns || form.rows % 16 != 0) return false;
  if (std::min(form.source_length, form.out_length) < kShortest) return false;
  return form.source_length <= kLongest && form.out_length <= kLongest && form.rows * form.taps <= 16 * kTurnedDepthsMost;
}

/// Tile 0 begins where the windows of all rows take the least of it, and none begins behind the row.
bool place_windows(const TapGemm& form, const TurnedPlace& place, TurnedSteps& steps) {
  const TurnedRows& out = steps.out;
  const int spread = std::max(0, (out.group - 1) * out.skew);
  for (int map = 0; map < out.maps; ++map)
    steps.out_offset[map] = static_cast<int>((place.out + map * out.group * (form.out_length % kSector)) % kSector);
  const std::int64_t last = form.position_begin;
  int best = -1;
  for (int before = 0; before < 64; ++before) {
    const std::int64_t first = form.out_stride * (last - before) + form.out_origin;
    int least = kSector, most = 0, shifts[kTurnedMapsMost];
    for (int map = 0; map < out.maps; ++map) {
      const std::int64_t from = first + steps.out_offset[map] + spread;
      const auto shift = static_cast<int>(ceil_to(from, kSector) - from);
      shifts[map] = shift + spread;
      least = std::min(least, shift);
      most = std::max(most, shift + (out.group - 1) * std::abs(out.skew));
    }
    if (first + most > 0 || (best >= 0 && most >= best)) continue;
    best = most;
    steps.out_first = first;
    steps.least_shift = least;
    steps.most_shift = most;
    std::copy_n(shifts, out.maps, steps.window_shift);
  }
  if (best < 0) return false;
  // Odd multiples of 16 elements: staged rows then lie in different banks.
  const int room = steps.stride * steps.positions - steps.most_shift;
  steps.window = (room - kSector) / (2 * kSector) * 2 * kSector + kSector;
  steps.is_even = true;
  for (int c = 0; c < out.classes; ++c) steps.is_even = steps.is_even && steps.shift_of(c) % 2 == 0;
  return room >= 4 * kSector;
}

bool place_source(const TapGemm& form, const TurnedPlace& place, TurnedSteps& steps) {
  TurnedRows& source = steps.source;
  if (steps.rows % (8 * source.classes) != 0) return false;
  const std::int64_t position = (steps.out_first - form.out_origin) / steps.stride;
  const std::int64_t halo = (form.taps - 1) * form.tap_step;
  if (halo > 256) return false;
  const int late = (source.group - 1) * source.skew;
  const std::int64_t from = position + form.source_origin + place.source;
  steps.source_offset = place.source;
  steps.source_first = floor_to(from, kVector);
  const auto lead = static_cast<int>(from - steps.source_first);
  steps.first_slot = lead + late;
  // Odd multiples of a vector: rows lie in different banks.
  const auto width = static_cast<int>(lead + late + steps.positions + halo);
  steps.pitch = static_cast<int>(ceil_to(width - kVector, 2 * kVector)) + kVector;
  steps.slots = steps.pitch + late;
  steps.raw_bytes = static_cast<int>(ceil_to(std::int64_t{2} * steps.rows * steps.pitch, 128));
  steps.tile_bytes = static_cast<int>(ceil_to(std::int64_t{2} * steps.rows * steps.slots, 128));
  // Box dimensions are at most 256 units, of four bytes where rows are whole ones.
  const bool has_words = form.source_length % 2 == 0 && place.source % 2 == 0;
  return steps.pitch <= (has_words ? 512 : 256);
}

bool divide_memory(int shared_limit, TurnedSteps& steps) {
  steps.staging_bytes = static_cast<int>(ceil_to(std::int64_t{2} * steps.columns * steps.window, 128));
  const int left = shared_limit - kFixedBytes - kTurnedConsumers * steps.staging_bytes;
  steps.stages = 3;
  if (left < 3 * steps.tile_bytes + 2 * steps.raw_bytes) steps.stages = 2;
  steps.raw_stages = std::min((left - steps.stages * steps.tile_bytes) / steps.raw_bytes, kTurnedRingMost);
  if (left < steps.stages * steps.tile_bytes || steps.raw_stages < 2) return false;
  steps.shared_bytes = shared_limit - left + steps.stages * steps.tile_bytes + steps.raw_stages * steps.raw_bytes;
  return true;
}

/// A product: two blocks of rows at one tap.
void list_products(const TapGemm& form, TurnedSteps& steps) {
  int count = 0;
  for (int tap = 0; tap < form.taps; ++tap) {
    for (int pair = 0; pair < steps.rows / 16; ++pair)
      steps.product[count++] =
          static_cast<std::uint32_t>(2 * pair * steps.slots + steps.first_slot + tap * static_cast<int>(form.tap_step));
  }
}

}  // namespace

TurnedSteps make_turned_steps(const TapGemm& form, TurnedPlace place, int sm_count, int shared_limit) {
  if (!is_of_this_kind(form)) return {};
  TurnedSteps steps{};
  steps.rows = static_cast<int>(form.rows);
  steps.columns = static_cast<int>(form.columns);
  steps.stride = static_cast<int>(form.out_stride);
  const auto depths = static_cast<int>(form.rows / 16 * form.taps);
  steps.kernel_depths = depths <= 6 ? 6 : depths <= 10 ? 10 : kTurnedDepthsMost;
  steps.positions = depths <= 10 ? 256 : 208;
  steps.source = source_rows(form.source_length);
  steps.out = out_rows(form.out_length);
  if (steps.out.maps > kTurnedMapsMost || steps.columns % steps.out.classes != 0) return {};
  if (!place_windows(form, place, steps) || !place_source(form, place, steps) || !divide_memory(shared_limit, steps)) return {};
  list_products(form, steps);
  steps.tiles_of_row = pieces(form.out_length - steps.out_first - steps.least_shift, steps.window);
  steps.tiles = form.N * steps.tiles_of_row;
  if (steps.tiles >= kMostTiles) return {};
  steps.by_tiles = FastDivide(static_cast<std::uint32_t>(steps.tiles_of_row));
  steps.grid = static_cast<unsigned>(std::min<std::int64_t>(sm_count, steps.tiles));
  steps.packed_bytes = std::int64_t{depths} * 128 * 16;
  steps.depths = depths;
  return steps;
}

}  // namespace polyphase::cuda::tensor_core
