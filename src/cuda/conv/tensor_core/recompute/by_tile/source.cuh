#pragma once
// Converts a unit of the source: all rows of its positions, with the scale and the form that its numbers need.

#include <cstdint>

#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/ptx/acquire.cuh"

namespace polyphase::cuda::tensor_core {

/// What is read of the source, by value: what a kernel's parameters say would be loaded again for each number.
struct SourceShape {
  int rows, stride, plane_step, far_step;  // far_step: from tap to tap, in elements
  std::int64_t length;
  float slope;
  std::uint32_t places, planes;
  FastDivide by_places, by_planes, by_own_planes;
  __device__ __forceinline__ explicit SourceShape(const ByTileCall& call)
      : rows(static_cast<int>(call.gemm.rows)),
        stride(static_cast<int>(call.gemm.source_stride)),
        plane_step(static_cast<int>(call.gemm.source_plane_step)),
        far_step(static_cast<int>(call.gemm.source_stride * call.gemm.tap_step)),
        length(call.gemm.source_length),
        slope(call.gemm.source_slope),
        places(static_cast<std::uint32_t>(call.tiling.steps.source.tile_places)),
        planes(static_cast<std::uint32_t>(call.tiling.steps.source.planes)),
        by_places(call.tiling.steps.source.by_places),
        by_planes(call.tiling.steps.source.by_planes),
        by_own_planes(call.tiling.steps.source.by_own_planes) {}
  /// As TapGemm::activated().
  [[nodiscard]] __device__ __forceinline__ float activated(float v) const { return v < 0.0F ? TapGemm::low(slope, v) : v; }
};

/// Elements of the rows of a sample and group from the one on that a position reads first: `base` has that of row 0, which need
/// not exist; elements [begin, end) do.
struct SourceRange {
  const float* base;
  int begin, end;
  __device__ __forceinline__ SourceRange(const ByTileCall& call, const ByTileUnit& unit, std::int64_t position) {
    const TapGemm& gemm = call.gemm;
    const std::int64_t first = gemm.source_stride * position + gemm.source_origin, most = 0x3fffffff;
    base = call.exact.source + (unit.n * gemm.G + unit.g) * gemm.rows * gemm.source_length + first;
    begin = static_cast<int>(min(max(-first, std::int64_t{0}), most));
    end = static_cast<int>(max(min(gemm.source_length - first, most), std::int64_t{0}));
  }
};

/// The magnitudes of `count` elements of each row, the same in all consumers.
__device__ __forceinline__ Magnitudes look_at(const ByTileCall& call, const SourceShape& shape, const SourceRange& range,
                                              int count) {
  constexpr int kRows = 8, kWidths = 5, kWarps = kByTileConsumers / 32;  // of the loads that a thread has outstanding
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int end = min(range.end, count);
  Magnitudes found;
  const int widths = (end - range.begin + 32 * kWidths - 1) / (32 * kWidths), tasks = (shape.rows + kRows - 1) / kRows * widths;
#pragma unroll 1
  for (int task = warp; task < tasks; task += kWarps) {
    const int row = task / widths * kRows, first = range.begin + task % widths * (32 * kWidths) + lane;
    float v[kRows][kWidths];
    const float* from = range.base + row * shape.length + first;
#pragma unroll
    for (int r = 0; r < kRows; ++r, from += shape.length) {
#pragma unroll
      for (int i = 0; i < kWidths; ++i) v[r][i] = row + r < shape.rows && first + 32 * i < end ? from[32 * i] : 0.0F;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kWidths; ++i) found.add(shape.activated(v[r][i]));
    }
  }
  found = {__reduce_max_sync(0xffffffffU, found.most), __reduce_min_sync(0xffffffffU, found.least),
           __reduce_or_sync(0xffffffffU, found.unusual)};
  ByTileShared& shared = call.shared;
  static_assert(kWarps == kPackColumns);
  if (lane == 0) shared.most[warp] = found.most, shared.least[warp] = found.least, shared.unusual[warp] = found.unusual;
  meet_consumers();
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    found.most = max(found.most, shared.most[i]);
    found.least = min(found.least, shared.least[i]);
    found.unusual |= shared.unusual[i];
  }
  return found;
}

/// Converts 128 positions: [row step][plane][part][block][place][16 bytes].
template <int kForm, int kParts>
__device__ __forceinline__ void convert_half(const SourceShape& shape, const SourceRange& range, int row_steps,
                                             const PowerPair& scale, unsigned char* half) {
  constexpr int kRows = rows_of_vector(kForm), kItems = 32 / kRows;  // a thread has 32 outstanding loads
  const std::uint32_t items = static_cast<std::uint32_t>(row_steps) * kPreconvertedBlocks * shape.planes * shape.places;
#pragma unroll 1
  for (std::uint32_t first = threadIdx.x; first < items; first += kByTileConsumers * kItems) {
    float v[kItems][kRows];
    std::uint32_t to[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const std::uint32_t item = first + static_cast<std::uint32_t>(i * kByTileConsumers);
      const std::uint32_t above = shape.by_places.divide(item), place = item - above * shape.places;
      const std::uint32_t block = shape.by_planes.divide(above), plane = above - block * shape.planes;
      const std::uint32_t tap = shape.by_own_planes.divide(plane), own_plane = plane - tap * shape.by_own_planes.divisor;
      const int e = shape.stride * static_cast<int>(place) + shape.far_step * static_cast<int>(tap) +
                    shape.plane_step * static_cast<int>(own_plane);
      const int row = static_cast<int>(block) * kRows;
      const int rows = item < items && e >= range.begin && e < range.end ? shape.rows - row : 0;
      const float* from = range.base + row * shape.length + e;
#pragma unroll
      for (int r = 0; r < kRows; ++r, from += shape.length) v[i][r] = r < rows ? *from : 0.0F;
      const std::uint32_t step = block / kPreconvertedBlocks;
      to[i] =
          ((step * shape.planes + plane) * (kParts * kPreconvertedBlocks) + block % kPreconvertedBlocks) * shape.places + place;
    }
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) v[i][r] = shape.activated(v[i][r]);
      uint4 parts[kParts];
      make_parts<kForm>(v[i], scale, parts);
      if (first + static_cast<std::uint32_t>(i * kByTileConsumers) >= items) continue;
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        reinterpret_cast<uint4*>(half)[to[i] + static_cast<std::uint32_t>(part * kPreconvertedBlocks) * shape.places] =
            parts[part];
    }
  }
}

template <int kForm, int kParts>
__device__ __forceinline__ void convert_unit_as(const ByTileCall& call, const SourceShape& shape, const ByTileUnit& unit,
                                                int exponent, unsigned char* to) {
  const PowerPair scale(source_target(kForm) - exponent);
  const std::int64_t position = call.gemm.position_begin + unit.in_sample * call.tiling.unit_positions;
  const auto halves = static_cast<int>(call.tiling.unit_positions / kWidePositions);
#pragma unroll 1
  for (int half = 0; half < halves; ++half)
    convert_half<kForm, kParts>(shape, SourceRange(call, unit, position + half * kWidePositions), call.tiling.row_steps[kForm],
                                scale, to + half * call.tiling.half_bytes[kForm]);
}

/// Where a unit of the list is converted to.
__device__ __forceinline__ unsigned char* place_of_unit(const ByTileCall& call, std::uint32_t index) {
  const auto places = static_cast<std::uint32_t>(kChunkPlaces * call.tiling.chunk);
  return call.arrays.units + std::int64_t{index % places} * call.tiling.unit_bytes;
}

/// Converts a unit of the list, once the one before in its place has been multiplied.
template <int kParts>
__device__ __noinline__ void convert_unit(const ByTileCall call, std::uint32_t index, std::uint32_t chunk) {
  if (chunk >= kChunkPlaces && threadIdx.x == 0) {
    const auto expected = static_cast<std::uint32_t>(call.tiling.chunk * call.tiling.steps.column_tiles);
    while (ptx::load_acquire(call.arrays.multiplied + chunk - kChunkPlaces) != expected) __nanosleep(50);
  }
  meet_consumers();
  const ByTileUnit unit(call.tiling, call.gemm, __ldcg(call.arrays.unit_list + index));
  const SourceShape shape(call);
  const TapGemm& gemm = call.gemm;
  const std::int64_t reach = gemm.source_stride * (call.tiling.unit_positions - 1 + (gemm.taps - 1) * gemm.tap_step) +
                             (gemm.planes - 1) * gemm.source_plane_step;
  const SourceRange range(call, unit, gemm.position_begin + unit.in_sample * call.tiling.unit_positions);
  const Magnitudes found = look_at(call, shape, range, static_cast<int>(min(reach + 1, std::int64_t{0x3fffffff})));
  const int exponent = exponent_of(found.most);
  const bool is_tf32 = found.needs_tf32() || __ldcg(&call.arrays.words->needs_tf32) != 0;
  unsigned char* const to = place_of_unit(call, index);
  if (is_tf32)
    convert_unit_as<kFormTf32, kParts>(call, shape, unit, exponent, to);
  else
    convert_unit_as<kFormF16, kParts>(call, shape, unit, exponent, to);
  __threadfence();
  ptx::fence_async_global();
  meet_consumers();
  if (threadIdx.x == 0)
    ptx::store_release(call.arrays.ready + index, UnitScale::packed(is_tf32 ? kFormTf32 : kFormF16, exponent));
}

}  // namespace polyphase::cuda::tensor_core
