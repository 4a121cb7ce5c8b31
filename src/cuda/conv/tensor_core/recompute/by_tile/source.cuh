#pragma once
// Converts the source with the scale and the form that a unit's numbers need, by warps, while others multiply. A part of a unit
// is divided into pieces; a warp copies its next piece to shared memory while it converts one.

#include <cstdint>

#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/piece.cuh"
#include "cuda/ptx/acquire.cuh"

namespace polyphase::cuda::tensor_core {

/// index % count; index /= count. Counts are mostly 1.
__device__ __forceinline__ int taken_off(int& index, int count) {
  if (count == 1) return 0;
  const int above = index / count, rest = index - above * count;
  index = above;
  return rest;
}

/// A part of a unit in work.
struct PartConversion {
  const ByTileCall& call;
  const SourceRange range;
  unsigned char* const to;         // the unit's place
  int first_row, windows, pieces;  // windows of kPieceWidth elements in what 128 positions of a far tap read

  __device__ __forceinline__ PartConversion(const ByTileCall& call, const ByTileUnit& unit, int part, int form,
                                            unsigned char* to)
      : call(call), range(call, unit), to(to), first_row(part * kPartRows) {
    const TapGemm& gemm = call.gemm;
    const auto span = static_cast<int>(gemm.source_stride) * (call.tiling.steps.source.tile_places - 1) +
                      static_cast<int>((gemm.planes - 1) * gemm.source_plane_step) + 1;
    windows = (span + kPieceWidth - 1) / kPieceWidth;
    const int rows = min(call.tiling.row_steps[form] * rows_of_step(form) - first_row, kPartRows);
    pieces = max(rows, 0) / kPieceRows * windows * far_taps() * halves();
  }
  [[nodiscard]] __device__ __forceinline__ int far_taps() const {
    return call.tiling.steps.source.taps_apart ? static_cast<int>(call.gemm.taps) : 1;
  }
  [[nodiscard]] __device__ __forceinline__ int halves() const {
    return static_cast<int>(call.tiling.unit_positions / kWidePositions);
  }

  struct Piece {
    int row, window, far_tap, half, origin;  // origin: the element of place 0 of plane 0
  };
  [[nodiscard]] __device__ __forceinline__ Piece piece(int index) const {
    Piece piece;
    piece.window = taken_off(index, windows);
    piece.far_tap = taken_off(index, far_taps());
    piece.half = taken_off(index, halves());
    piece.row = first_row + index * kPieceRows;
    piece.origin = static_cast<int>(call.gemm.source_stride) *
                   (piece.half * kWidePositions + piece.far_tap * static_cast<int>(call.gemm.tap_step));
    return piece;
  }
  /// Starts the copy of a piece, or of nothing after the last one.
  __device__ __forceinline__ void copy(int index, std::uint32_t buffer) const {
    if (index < pieces) {
      const Piece of = piece(index);
      copy_piece(range, of.row, of.origin + of.window * kPieceWidth, buffer);
    }
    ptx::copy_commit();
  }

  /// The first place from element `e` of a plane on.
  __device__ __forceinline__ static int first_place(int e, int stride) { return stride == 1 ? e : (e + stride - 1) / stride; }

  /// Writes the places of a staged piece: [row step][plane][part][block][place][16 bytes].
  template <int kForm, int kParts>
  __device__ __forceinline__ void convert(const Piece& piece, const PowerPair& scale, std::uint32_t buffer) const {
    constexpr int kRows = rows_of_vector(kForm), kBlocks = kPieceRows / kRows;
    constexpr int kUnroll = kParts == 1 ? 2 : 1;  // there are registers for it
    const SourceLayout& source = call.tiling.steps.source;
    const auto stride = static_cast<int>(call.gemm.source_stride), plane_step = static_cast<int>(call.gemm.source_plane_step);
    const auto planes = static_cast<int>(call.gemm.planes), places = source.tile_places;
    const int block = piece.row / kRows, begin = piece.window * kPieceWidth;
    auto* const half = reinterpret_cast<uint4*>(to + piece.half * call.tiling.half_bytes[kForm]);
    const int first_row = (block / kPreconvertedBlocks * static_cast<int>(source.planes) + piece.far_tap * planes) *
                              (kParts * kPreconvertedBlocks) +
                          block % kPreconvertedBlocks;
#pragma unroll 1
    for (int own_plane = 0; own_plane < planes; ++own_plane) {
      const int first = max(begin - own_plane * plane_step, 0), last = begin + kPieceWidth - own_plane * plane_step;
      const int end = last <= 0 ? 0 : min(places, first_place(last, stride));
      const int to_row = (first_row + own_plane * (kParts * kPreconvertedBlocks)) * places;
#pragma unroll kUnroll
      for (int place = first_place(first, stride) + static_cast<int>(threadIdx.x) % 32; place < end; place += 32) {
        const std::uint32_t from = buffer + static_cast<std::uint32_t>(stride * place + own_plane * plane_step - begin) * 4;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
          float v[kRows];
#pragma unroll
          for (int r = 0; r < kRows; ++r)
            v[r] = __uint_as_float(ptx::load_shared(from + static_cast<std::uint32_t>((b * kRows + r) * kPieceWidth * 4)));
          activate_all(call.gemm, v);
          uint4 parts[kParts];
          make_parts<kForm>(v, scale, parts);
#pragma unroll
          for (int part = 0; part < kParts; ++part)
            half[to_row + (b + part * kPreconvertedBlocks) * places + place] = parts[part];
        }
      }
    }
  }
};

/// Where a unit of the list is converted to.
__device__ __forceinline__ unsigned char* place_of_unit(const ByTileCall& call, std::uint32_t index) {
  return call.arrays.units + std::int64_t{index % static_cast<std::uint32_t>(call.tiling.places)} * call.tiling.unit_bytes;
}

/// Converts a part of unit `index` of the list; `buffers`: two pieces of this warp.
template <int kParts>
__device__ __forceinline__ void convert_part(const ByTileCall& call, std::uint32_t index, int number, std::uint32_t buffers,
                                             bool needs_tf32) {
  const std::uint32_t in_all = __ldcg(call.arrays.unit_list + index);
  const UnitScale scale(call.arrays.extents + in_all, needs_tf32);
  const PartConversion part(call, ByTileUnit(call.tiling, call.gemm, in_all), number, scale.form, place_of_unit(call, index));
  std::uint32_t buffer = kPieceBytes;  // of the piece before
#pragma unroll 1
  for (int i = -1; i < part.pieces; ++i, buffer ^= kPieceBytes) {
    part.copy(i + 1, buffers + (buffer ^ kPieceBytes));
    if (i < 0) {
      while (!__all_sync(0xffffffffU, has_place(call, index))) __nanosleep(50);
      continue;
    }
    ptx::copy_wait<1>();
    __syncwarp();
    if (scale.form == kFormF16)
      part.convert<kFormF16, kParts>(part.piece(i), PowerPair(source_target(kFormF16) - scale.exponent), buffers + buffer);
    else
      part.convert<kFormTf32, kParts>(part.piece(i), PowerPair(source_target(kFormTf32) - scale.exponent), buffers + buffer);
    __syncwarp();  // the buffer is filled again
  }
}

/// A converter warp's share of all parts of the units in the list.
template <int kParts>
__device__ __forceinline__ void convert_by_tile(const ByTileCall& call) {
  const FastDivide& parts = call.tiling.by_parts;
  const std::uint32_t count = __ldcg(&call.arrays.words->units) * parts.divisor, lane = threadIdx.x % 32;
  const bool needs_tf32 = __ldcg(&call.arrays.words->needs_tf32) != 0;
  const std::uint32_t buffers = ptx::shared_address(call.shared.pieces[threadIdx.x / 32 - kByTileConsumers / 32 - 1]);
  std::uint32_t next = 0;
  if (lane == 0) next = atomicAdd(&call.arrays.words->part, 1U);
#pragma unroll 1
  for (;;) {
    const std::uint32_t taken = __shfl_sync(0xffffffffU, next, 0);
    if (taken >= count) break;
    if (lane == 0) next = atomicAdd(&call.arrays.words->part, 1U);  // which takes a while
    const std::uint32_t index = parts.divide(taken);
    convert_part<kParts>(call, index, static_cast<int>(taken - index * parts.divisor), buffers, needs_tf32);
    ptx::fence_async_global();
    __syncwarp();
    if (lane == 0) ptx::add_release(call.arrays.ready + index, 1);  // of what all lanes have written
  }
}

}  // namespace polyphase::cuda::tensor_core
