#pragma once
// The weights of the direct kernels, packed in the order in which their steps read them.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/direct/tiling.hpp"
#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::direct {

/// Splits a mixed-radix number into digits, the fastest first. Index is unsigned, 32 bits wide if the number fits: a chain of
/// 64-bit divisions would take longer than the rest of the packing.
template <class Index>
struct Digits {
  Index rest;
  template <class Size>
  __host__ __device__ __forceinline__ Index take(Size size) {
    const Index digit = rest % static_cast<Index>(size);
    rest /= static_cast<Index>(size);
    return digit;
  }
};

/// The coordinates of one packed weight.
struct PackedPlace {
  std::int64_t row, plane, window, column, g;
};

/// Element `i` of packed[g][column tile][row step][plane step][tap step], then in the order of Steps::piece_taps, then
/// [tile_columns].
template <class Index>
__device__ __forceinline__ PackedPlace packed_place(const Steps& steps, int tile_columns, Index i) {
  Digits<Index> digits{i};
  PackedPlace place{};
  place.column = digits.take(tile_columns);
  if (steps.piece_taps == 0) {
    place.row = digits.take(steps.rows);
    place.plane = digits.take(steps.planes);
    place.window = digits.take(steps.taps);
  } else {
    const auto taps = static_cast<Index>(steps.taps), piece_taps = static_cast<Index>(steps.piece_taps);
    const auto products = static_cast<Index>(steps.planes) * static_cast<Index>(steps.rows);
    Digits<Index> step{digits.take(taps * products)};
    const Index first_tap = step.rest / (piece_taps * products) * piece_taps;
    step.rest -= first_tap * products;
    place.window = first_tap + step.take(min(piece_taps, taps - first_tap));
    place.plane = step.take(steps.planes);
    place.row = step.rest;
  }
  place.window += static_cast<std::int64_t>(digits.take(steps.tap_steps)) * steps.taps;
  place.plane += static_cast<std::int64_t>(digits.take(steps.plane_steps)) * steps.planes;
  place.row += static_cast<std::int64_t>(digits.take(steps.row_steps)) * steps.rows;
  place.column += static_cast<std::int64_t>(digits.take(steps.column_tiles)) * tile_columns;
  place.g = digits.rest;
  return place;
}

/// packed[i] = the weight for that place; zero in the padding. Index must hold `count` plus one grid stride.
template <class T, class A, class Index>
__global__ void pack_weights_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Steps steps, std::int64_t K,
                                    int tile_columns, bool is_forward, Index count, const T* __restrict__ w,
                                    A* __restrict__ packed) {
  const std::int64_t out_per_group = is_forward ? gemm.out_channels : gemm.rows;
  const std::int64_t in_per_group = is_forward ? gemm.rows : gemm.out_channels;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<Index>(gridDim.x) * blockDim.x) {
    const PackedPlace at = packed_place<Index>(steps, tile_columns, i);
    Digits<Index> column{static_cast<Index>(at.column)};  // forward: (channel, class)
    const std::int64_t a = is_forward ? static_cast<std::int64_t>(column.take(gemm.classes)) : at.plane;
    const std::int64_t k = a + (is_forward ? gemm.taps - 1 - at.window : at.window) * gemm.phase_classes;
    const std::int64_t ci = at.g * in_per_group + (is_forward ? at.row : at.column);
    const std::int64_t co = is_forward ? static_cast<std::int64_t>(column.rest) : at.row;
    const bool exists =
        at.column < gemm.columns && at.row < gemm.rows && at.plane < gemm.planes && at.window < gemm.taps && k < K;
    packed[i] = exists ? static_cast<A>(w[(ci * out_per_group + co) * K + k]) : A(0);
  }
}

}  // namespace polyphase::cuda::direct
