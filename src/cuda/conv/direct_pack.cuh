#pragma once
// The weights of the direct kernels, packed in the order in which their steps read them.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/direct_steps.hpp"
#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::direct {

/// Takes a mixed-radix number apart, the fastest digit first.
struct Digits {
  std::int64_t rest;
  __host__ __device__ __forceinline__ std::int64_t take(std::int64_t size) {
    const std::int64_t digit = rest % size;
    rest /= size;
    return digit;
  }
};

/// What meets one packed weight.
struct PackedPlace {
  std::int64_t row, plane, window, column, g;
};

/// Element `i` of packed[g][column tile][row step][plane step][tap step], then the order of Steps::piece_taps, then
/// [tile_columns].
__device__ __forceinline__ PackedPlace packed_place(const TapGemm& form, const Steps& steps, int tile_columns, std::int64_t i) {
  Digits digits{i};
  PackedPlace place{};
  place.column = digits.take(tile_columns);
  if (steps.piece_taps == 0) {
    place.row = digits.take(steps.rows);
    place.plane = digits.take(steps.planes);
    place.window = digits.take(steps.taps);
  } else {
    Digits step{digits.take(static_cast<std::int64_t>(steps.taps) * steps.planes * steps.rows)};
    const std::int64_t piece_size = static_cast<std::int64_t>(steps.piece_taps) * steps.planes * steps.rows;
    const std::int64_t first_tap = step.rest / piece_size * steps.piece_taps;
    step.rest %= piece_size;
    place.window = first_tap + step.take(min(static_cast<std::int64_t>(steps.piece_taps), steps.taps - first_tap));
    place.plane = step.take(steps.planes);
    place.row = step.rest;
  }
  place.window += digits.take(steps.tap_steps) * steps.taps;
  place.plane += digits.take(steps.plane_steps) * steps.planes;
  place.row += digits.take(steps.row_steps) * steps.rows;
  place.column += digits.take(steps.column_tiles) * tile_columns;
  place.g = digits.rest;
  return place;
}

/// packed[i] = the weight that meets it; zero in the padding.
template <class T, class A>
__global__ void pack_weights_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ Steps steps,
                                    const __grid_constant__ ConvProblem problem, int tile_columns, bool is_forward,
                                    std::int64_t count, const T* __restrict__ w, A* __restrict__ packed) {
  const std::int64_t out_per_group = problem.C_out / problem.G, in_per_group = problem.C_in / problem.G;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const PackedPlace at = packed_place(form, steps, tile_columns, i);
    const std::int64_t a = is_forward ? at.column % form.classes : at.plane;
    const std::int64_t k = a + (is_forward ? form.taps - 1 - at.window : at.window) * form.phase_classes;
    const std::int64_t ci = at.g * in_per_group + (is_forward ? at.row : at.column);
    const std::int64_t co = is_forward ? at.column / form.classes : at.row;
    const bool exists =
        at.column < form.columns && at.row < form.rows && at.plane < form.planes && at.window < form.taps && k < problem.K;
    packed[i] = exists ? static_cast<A>(w[(ci * out_per_group + co) * problem.K + k]) : A(0);
  }
}

}  // namespace polyphase::cuda::direct
