#pragma once
// Stores the sums of f32_kernel.cuh from registers, and recomputes the suspect ones.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/recompute/recompute_block.cuh"
#include "cuda/conv/tensor_core/recompute/suspects.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/chunks.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/tiling.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased4F32Sums = kPhased4F32Half / 2;  // per thread and half
using Phased4F32Totals = float[2][kPhased4F32Sums];

/// What the threads of a consumer share, and where a thread's sums belong: units 2*slot and the next of the tile.
template <int kStride>
struct Phased4F32Store {
  static constexpr int kChannels = kPhased4F32Columns / kStride, kVectors = 2 * kStride / 4;
  const TapGemm& gemm;
  const Phased4Tiling& tiling;
  ScaledFinish finish;
  float* out;
  int slot, lane;

  /// totals[r / (kStride/2)][kChannels / 2 * (r % (kStride/2)) + 4*j + 2*h + b]: class r of unit h, channel 8*j + 2*(lane%4) +
  /// b. bias: of channel `lane`.
  __device__ __forceinline__ void store(const Phased4Place& place, Phased4F32Totals& totals, float bias) const {
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float offset = __shfl_sync(0xffffffffU, bias, 8 * j + lane % 4 * 2 + b);
#pragma unroll
        for (int r = 0; r < kStride; ++r) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& sum = of(totals, r, j, h, b);
            sum = finish.linear(sum, offset);
          }
        }
      }
    }
    finish.template activate<float>(totals[0]);
    finish.template activate<float>(totals[1]);
    auto left = static_cast<int>(gemm.out_channels - place.first_channel) - lane % 4 * 2;
    if (place.n >= gemm.N) return;
    // Two lanes exchange half of their vectors, so that they write neighbouring ones.
    const int odd = slot % 2;
    const std::int64_t first = place.unit + (slot - odd) * 2;
    float* to = out +
                ((place.n * gemm.G + place.g) * gemm.out_channels + place.first_channel + lane % 4 * 2) * gemm.out_length +
                first * kStride + odd * 4;
    const auto own_units = static_cast<int>(min(tiling.units - first, static_cast<std::int64_t>(4)));
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j, left -= 8, to += 6 * gemm.out_length) {
#pragma unroll
      for (int b = 0; b < 2; ++b, to += gemm.out_length) {
        float4 vectors[kVectors];
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const int h = 4 * i / kStride, r = 4 * i % kStride;
          vectors[i] = make_float4(of(totals, r, j, h, b), of(totals, r + 1, j, h, b), of(totals, r + 2, j, h, b),
                                   of(totals, r + 3, j, h, b));
        }
#pragma unroll
        for (int i = 0; i < kVectors / 2; ++i) exchange(odd != 0, vectors[2 * i], vectors[2 * i + 1]);
        if (b >= left) continue;
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          // Vectors 2*i of both lanes are now the first and second of one lane.
          const int at = 2 * (i / 2) + i % 2 * kVectors;
          if ((at + odd) * 4 / kStride < own_units) __stcs(reinterpret_cast<float4*>(to + at * 4), vectors[i]);
        }
      }
    }
  }
  __device__ __forceinline__ static float& of(Phased4F32Totals& totals, int r, int j, int h, int b) {
    return totals[r / (kStride / 2)][kChannels / 2 * (r % (kStride / 2)) + 4 * j + 2 * h + b];
  }
  /// The even lane gets the first vectors of both lanes, the odd lane the second ones.
  __device__ __forceinline__ static void exchange(bool odd, float4& first, float4& second) {
    const float4 send = odd ? first : second;
    const float4 got = make_float4(__shfl_xor_sync(0xffffffffU, send.x, 4), __shfl_xor_sync(0xffffffffU, send.y, 4),
                                   __shfl_xor_sync(0xffffffffU, send.z, 4), __shfl_xor_sync(0xffffffffU, send.w, 4));
    (odd ? first : second) = got;
  }
};

/// Recomputes a warp's suspect outputs. Not inlined: it is rarely called, and must not take registers from its caller.
template <int kStride>
__device__ __noinline__ void recompute_f32_units(const TapGemm& gemm, const Phased4Tiling& tiling,
                                                 const ExactSource<float>& exact, Phased4Place place, int first,
                                                 Suspects<2> suspects) {
  constexpr int kChannels = kPhased4F32Columns / kStride, kOfRun = kStride / 2, kM = kChannels / 16;
  if (place.n >= gemm.N) return;
  using Block = RecomputeBlock<kM, 2>;  // channels and 16 units
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int r = 0; r < kStride; ++r) {
    const std::int64_t t0 = (place.unit + first) * kStride + r, a = (t0 - gemm.out_origin) % gemm.out_stride;
    const std::int64_t position0 = (t0 - gemm.out_origin - a) / gemm.out_stride;
    std::uint32_t own = 0;
#pragma unroll
    for (int bit = 0; bit < Block::kOutputs; ++bit) {
      const int channel = lane / 4 + 8 * Block::column_of(bit), unit = Block::position_of(bit, lane);
      const int of = unit / 2 * 4 + channel % 8 / 2;  // the lane that had the sum
      const std::uint32_t its = __shfl_sync(0xffffffffU, r < kOfRun ? suspects.of_run[0] : suspects.of_run[1], of);
      const int its_bit = r % kOfRun * (kChannels / 2) + channel / 8 * 4 + unit % 2 * 2 + channel % 2;
      const bool exists = place.first_channel + channel < gemm.out_channels && place.unit + first + unit < tiling.units;
      if (exists && (its >> its_bit & 1U) != 0) own |= 1U << bit;
    }
    std::int64_t columns[2 * kM];
#pragma unroll
    for (int c = 0; c < 2 * kM; ++c) {
      const std::int64_t channel = place.first_channel + lane / 4 + 8 * c;
      columns[c] = channel < gemm.out_channels ? channel * gemm.classes + a : -1;
    }
    recompute_block<kM, 2>(gemm, exact, place.g, columns, own, [&](int j) { return SumPosition{place.n, position0 + j}; });
  }
}

}  // namespace polyphase::cuda::tensor_core
