#pragma once
// Stores a consumer's sums as boxes of the output. They are staged as rows that begin at a sector; neighbouring rows are
// shifted by their difference in alignment. A residual, or a derivative's result, is loaded as boxes to the same places before
// the sums.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/layout.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// The places of sums in the output: as neighbours in one word, as neighbours in two, or each next to an output without taps.
enum class Tma16Store { words, halves, strided };

template <class T>
__device__ __forceinline__ std::uint32_t as_word(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  }
}
template <class T>
__device__ __forceinline__ float2 as_floats(std::uint32_t word) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  else
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&word));
}

/// The aux operand at a sum's place: none, a residual (added to the activated sum), or the result that gives a derivative
/// (multiplied with the sum instead of an activation).
enum class Tma16Aux { nothing, sum, derivative };

struct Tma16Finish {
  float scale, slope;
  bool is_relu;
  __device__ __forceinline__ explicit Tma16Finish(const Epilogue& epilogue)
      : scale(static_cast<float>(epilogue.scale)),
        slope(static_cast<float>(epilogue.slope)),
        is_relu(epilogue.activation == Activation::relu) {}
  template <Tma16Aux kAux>
  __device__ __forceinline__ float of(float own, float other) const {
    if constexpr (kAux == Tma16Aux::sum) return fmaf(scale, own, other);
    return passes(is_relu, other) ? own : is_relu ? 0.0F : slope * own;
  }
};

/// The staged row of one column of a thread: positions 2*(lane%4) and the next of every eight.
template <class T, Tma16Store kStore>
struct Tma16Column {
  std::uint32_t to;  // shared address of the tile's first output, which may precede the row
  int from;          // from there to the row's first element
  float offset;      // bias
  bool exists;

  __device__ __forceinline__ Tma16Column(const Tma16Tiling& tiling, std::uint32_t staging, const T* bias, int column,
                                         int lane) {
    exists = column < tiling.columns;
    const int own = exists ? column : 0, shift = tiling.shift_of(own), each = kStore == Tma16Store::strided ? 2 : 1;
    to = staging + static_cast<std::uint32_t>(2 * (tiling.staged_row(own) * tiling.window - shift + 2 * (lane % 4) * each));
    from = shift - 2 * (lane % 4) * each;
    offset = exists && bias != nullptr ? static_cast<float>(bias[own]) : 0.0F;
  }

  /// Outputs of this thread's positions 8*group and the next; `nothing`: the output without taps.
  template <Tma16Aux kAux>
  __device__ __forceinline__ void put(int group, float even, float odd, int window, std::uint32_t nothing,
                                      const Tma16Finish& finish) const {
    const std::uint32_t both = as_word<T>(even, odd);
    if constexpr (kStore == Tma16Store::words) {
      put_word<kAux>(8 * group, both, window, finish);
    } else if constexpr (kStore == Tma16Store::halves) {
      put_half<kAux>(8 * group, both, window, finish);
      put_half<kAux>(8 * group + 1, both >> 16, window, finish);
    } else {
      // Each with the output without taps before or after it, whichever shares its word.
      const bool is_behind = (from & 1) != 0;
      const int at = 16 * group - (is_behind ? 1 : 0);
      put_word<kAux>(at, is_behind ? __byte_perm(nothing, both, 0x5410) : __byte_perm(both, nothing, 0x5410), window, finish);
      put_word<kAux>(at + 2, is_behind ? __byte_perm(nothing, both, 0x7610) : __byte_perm(both, nothing, 0x5432), window,
                     finish);
    }
  }
  __device__ __forceinline__ bool has(int at, int window) const {
    return static_cast<unsigned>(at - from) < static_cast<unsigned>(window);
  }
  template <Tma16Aux kAux>
  __device__ __forceinline__ void put_word(int at, std::uint32_t word, int window, const Tma16Finish& finish) const {
    if (!has(at, window)) return;
    const std::uint32_t place = to + static_cast<std::uint32_t>(2 * at);
    if constexpr (kAux != Tma16Aux::nothing) {
      const float2 other = as_floats<T>(ptx::load_shared(place)), own = as_floats<T>(word);
      word = as_word<T>(finish.of<kAux>(own.x, other.x), finish.of<kAux>(own.y, other.y));
    }
    ptx::store_shared(place, word);
  }
  template <Tma16Aux kAux>
  __device__ __forceinline__ void put_half(int at, std::uint32_t half, int window, const Tma16Finish& finish) const {
    if (!has(at, window)) return;
    const std::uint32_t place = to + static_cast<std::uint32_t>(2 * at);
    if constexpr (kAux != Tma16Aux::nothing) {
      const float other = as_floats<T>(ptx::load_shared_half(place)).x, own = as_floats<T>(half).x;
      half = as_word<T>(finish.of<kAux>(own, other), 0.0F);
    }
    ptx::store_shared_half(place, half);
  }
};

/// Whether all of a tile's windows are inside the rows; `first`: its first output.
__device__ __forceinline__ bool is_inside(const Tma16Tiling& tiling, std::int64_t length, std::int64_t first) {
  return first + tiling.least_shift >= 0 && first + tiling.most_shift + tiling.window <= length;
}

/// Stores a tile that meets its rows' ends, element by element.
template <class T>
__device__ __noinline__ void store_tma16_ends(const Tma16Tiling& tiling, const Epilogue& epilogue, std::int64_t length,
                                              std::int64_t first, std::int64_t row, const T* staging, T* out, int thread) {
#pragma unroll 1
  for (int c = thread / 32; c < tiling.columns; c += 4) {
    const T* from = staging + tiling.staged_row(c) * tiling.window;
    const std::int64_t begin = first + tiling.shift_of(c);
    T* to = out + (row + c) * length + begin;
#pragma unroll 1
    for (int i = thread % 32; i < tiling.window; i += 32) {
      if (begin + i < 0 || begin + i >= length) continue;
      const Epilogue::Others<float> others = epilogue.others<float>(to + i);
      const auto own = static_cast<float>(from[i]);
      to[i] = epilogue.derivative != 0 ? static_cast<T>(epilogue.differentiate(own, others.result))
                                       : epilogue.summed<T>(own, others.added);
    }
  }
}

/// The boxes of a tile, one per map: loads those of the aux operand to `staging`, counted on `barrier`, or stores those of the
/// output from there.
struct Tma16Boxes {
  const Tma16Tiling& tiling;
  const Tma16Maps& maps;
  int first, sample;
  std::uint32_t staging;
  template <class Issue>
  __device__ __forceinline__ void for_each(const Issue& issue) const {
    const int each = tiling.columns / tiling.out.classes, bytes = 2 * each * tiling.out.group * tiling.window;
    for (int map = 0; map < tiling.out.maps; ++map)
      issue(map, (first + tiling.window_shift[map] + tiling.out_offset[map]) / 2, sample * each,
            staging + static_cast<std::uint32_t>(map * bytes));
  }
  __device__ __forceinline__ void load(std::uint32_t barrier) const {
    ptx::mbarrier_arrive_expect(barrier, static_cast<std::uint32_t>(2 * tiling.columns * tiling.window));
    for_each(
        [&](int map, int number, int row, std::uint32_t at) { ptx::tensor_copy(at, &maps.aux[map], number, 0, row, barrier); });
  }
  __device__ __forceinline__ void store() const {
    for_each([&](int map, int number, int row, std::uint32_t at) { ptx::tensor_store(&maps.out[map], number, 0, row, at); });
    ptx::bulk_commit();
  }
};

}  // namespace polyphase::cuda::tensor_core
