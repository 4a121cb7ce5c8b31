#pragma once
// The depthwise kernels for 16-bit types on tensor cores: forward and dgrad. Device code of band.cu. Read kernel.cuh first,
// which computes every other shape.
//
// Both directions are a short filter over a long row. Blocks of N outputs use the same taps, each block at a later place in the
// row:
//   out[b*N + n] = sum over p of source[begin + 8*pitch*b + p] * band[p][n]
//   forward  N = 8*S, pitch 1: band[p][n] = w[t + P - S*begin + n - S*p], t the tile's first output
//   dgrad    N = 8, pitch S:   band[p][n] = w[p - S*n - shift], begin = S*i - P - shift, i the tile's first output
// with w = 0 outside its K taps. Sixteen blocks are the rows of A: overlapping windows in shared memory. The band is B: a few
// registers per lane. Windows begin at multiples of 16 bytes; the remaining misalignment of a row shifts the band at no cost.
// Copies begin at lines. Bytes: x and y once. One instruction multiplies 16 x 16 by 16 x 8; 128 outputs take two or three.
//
// A zero of the band times an infinity is a NaN. A warp that finds one recomputes its outputs tap by tap.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/depthwise/band.hpp"
#include "cuda/conv/depthwise/chunk_stage.cuh"
#include "cuda/conv/epilogue/light.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/mma.cuh"

namespace polyphase::cuda::depthwise {

inline constexpr int kChunk = 8;        // elements in 16 bytes
inline constexpr int kBandLine = 64;    // elements in a line of memory
inline constexpr int kWarpBlocks = 16;  // rows of A
inline constexpr int kBandGroups = 4;   // A matrices per warp and tile
inline constexpr int kBandStages = 2;   // per tile; wgrad has its own number

/// Blocks per SM: as many as registers allow without spilling. Code for GPUs before sm_90 needs more of them.
[[nodiscard]] constexpr int band_blocks(bool forward, bool plain, int outputs) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  constexpr int kDgrad = 6, kFinishing = 8, kWide = 7;
#else
  constexpr int kDgrad = 8, kFinishing = 10, kWide = 8;
#endif
  if (!forward) return kDgrad;
  if (plain) return 10;
  return outputs < 4 ? kFinishing : kWide;
}

/// w[index] or 0, as its 16 bits.
template <class T>
__device__ __forceinline__ std::uint32_t band_bits(const T* w, int index, int K) {
  return index >= 0 && index < K ? reinterpret_cast<const std::uint16_t*>(w)[index] : 0U;
}

/// Output `at` of a row by the definition. `source` is the row that is read, or the first of dgrad's M rows.
template <bool kForward, class T>
__device__ __forceinline__ float add_taps(const BandPlan& plan, const T* source, const T* taps, int at) {
  float sum = 0;
  if constexpr (kForward) {
    for (int k = 0; k < plan.K; ++k) {
      const int behind = at + plan.P - k;
      if (behind >= 0 && behind % plan.S == 0 && behind / plan.S < plan.L_in)
        sum += static_cast<float>(source[behind / plan.S]) * static_cast<float>(taps[k]);
    }
  } else {
    for (int m = 0; m < static_cast<int>(plan.by_outputs.divisor); ++m, source += plan.L_out, taps += plan.K) {
      for (int k = 0; k < plan.K; ++k) {
        const int t = plan.S * at + k - plan.P;
        if (t >= 0 && t < plan.L_out) sum += static_cast<float>(source[t]) * static_cast<float>(taps[k]);
      }
    }
  }
  return sum;
}

template <class T>
struct PairOf {
  using type = __half2;
};
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};
__device__ __forceinline__ __half2 make_pair(float low, float high, __half) { return __floats2half2_rn(low, high); }
__device__ __forceinline__ __nv_bfloat162 make_pair(float low, float high, __nv_bfloat16) {
  return __floats2bfloat162_rn(low, high);
}

/// to[0 ... 2*kCount) <- pairs, limited to [low, high). `to` is aligned to the pairs.
template <int kCount, class T, class Pair>
__device__ __forceinline__ void store_pairs(T* to, int low, int high, const Pair (&pairs)[kCount]) {
  if (low <= 0 && high >= 2 * kCount)
    return put_words(reinterpret_cast<std::uint32_t*>(to), reinterpret_cast<const std::uint32_t(&)[kCount]>(pairs));
#pragma unroll
  for (int i = 0; i < 2 * kCount; ++i) {
    if (i >= low && i < high) to[i] = i % 2 == 0 ? pairs[i / 2].x : pairs[i / 2].y;
  }
}

/// Computes a tile of one row, adding dgrad's M rows one after another. kN is the number of multiplications along N (N/8),
/// which is S in forward. Column 2q + e of multiplication j is output 2*kN*q + 2*j + e of its block, so that a lane's outputs
/// are neighbours. Shared memory: stages of the source. kPlain: the kernel has no epilogue and none of its instructions.
/// Pointers are not __restrict__: the compiler could move loads of constant data before the wait.
template <class T, int kN, int kDepth, bool kForward, bool kPlain>
__global__ void __launch_bounds__(kBandThreads, band_blocks(kForward, kPlain, kN))
    band_gather_kernel(const __grid_constant__ BandPlan plan, const T* source, const T* w, const T* bias, T* out,
                       const __grid_constant__ Epilogue epilogue) {
  static_assert(kForward || kN == 1, "blocks of dgrad are 8 outputs");
  using Pair = typename PairOf<T>::type;
  constexpr int V = kBandGroups, kBlock = 8 * kN, kWarp = V * kWarpBlocks * kBlock;
  extern __shared__ __align__(16) unsigned char memory[];
  std::uint32_t* const stages = reinterpret_cast<std::uint32_t*>(memory);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, first_block = thread / 32 * V * kWarpBlocks;
  const int row = static_cast<int>(plan.by_tiles.divide(blockIdx.x));
  const int tile = static_cast<int>(blockIdx.x) - row * plan.tiles;
  const int channel = row - static_cast<int>(plan.by_channels.divide(static_cast<unsigned>(row)) * plan.by_channels.divisor);
  const int M = kForward ? 1 : static_cast<int>(plan.by_outputs.divisor), pitch = kForward ? 1 : plan.S;
  const int length = kForward ? plan.L_out : plan.L_in, source_length = kForward ? plan.L_in : plan.L_out;
  T* const to = out + static_cast<std::int64_t>(row) * length;
  const int source_row = kForward ? static_cast<int>(plan.by_outputs.divide(static_cast<unsigned>(row))) : row * M;
  const T* const from = source + static_cast<std::int64_t>(source_row) * source_length;
  const T* const taps = w + static_cast<std::int64_t>(channel) * M * plan.K;

  const int width = static_cast<int>(blockDim.x) / 32 * kWarp;
  const int t = tile * width - misalignment(to, kBandLine);  // the first output
  // The first source element that any of them needs.
  const int behind = t + plan.P - plan.K + kN;
  const int begin = kForward ? (behind - (behind & (kN - 1))) / kN : plan.S * t - plan.P;

  std::uint32_t band[kN][kDepth][2];
  int places[kDepth];  // byte offsets of the lane's chunks
  const auto enter_row = [&](int m) {
    const T* const first = from + static_cast<std::int64_t>(m) * source_length + begin;
    const T* const taps_of_m = taps + static_cast<std::int64_t>(m) * plan.K;
    const int lead = misalignment(first, kBandLine), shift = lead % kChunk, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const int n = g / 2 * 2 * kN + 2 * j + g % 2, step = kForward ? -kN : 1;
      const int index = step * 2 * q + (kForward ? t + plan.P - kN * (begin - shift) + n : -shift - plan.S * n);
#pragma unroll
      for (int i = 0; i < 2 * kDepth; ++i)
        band[j][i / 2][i % 2] =
            band_bits(taps_of_m, index + step * 8 * i, plan.K) | band_bits(taps_of_m, index + step * (8 * i + 1), plan.K) << 16;
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
      places[d] = chunk_place(lead / kChunk + pitch * (first_block + lane % 16) + lane / 16 + 2 * d, plan.swizzle) * 16;
#pragma unroll
    for (int i = 0; i < kN * kDepth; ++i) ptx::hold(band[i / kDepth][i % kDepth]);
  };

  wait_for_grid_before();
  const float offset = bias != nullptr ? static_cast<float>(bias[channel]) : 0.0F;
  const LightActivation light(epilogue);
  // A lane's outputs: kN pairs at `at`, the next ones 8 blocks further on.
  const int at = t + (first_block + lane / 4) * kBlock + lane % 4 * 2 * kN;
  const bool inside = t >= 0 && t + width <= length;
  // Warps with outputs inside the row. The windows of the others are not read.
  const int warps = min(static_cast<int>(blockDim.x) / 32, (length - t + kWarp - 1) / kWarp);
  float sums[kForward ? 1 : V][kN][4];  // of the rows before
  pipeline<kBandStages>(
      M,
      [&](int m, int stage) {
        const T* const row_of_m = from + static_cast<std::int64_t>(m) * source_length;
        const int lead = misalignment(row_of_m + begin, kBandLine);
        fetch_chunks<kBandThreads>(row_of_m, source_length, begin - lead,
                                   lead / kChunk + pitch * (warps * V * kWarpBlocks - 1) + 2 * kDepth, plan.swizzle,
                                   stages + stage * plan.stage_chunks * 4);
      },
      [&] { enter_row(0); },
      [&](int m, int stage) {
        if (thread / 32 >= warps) return;
        const auto window = static_cast<std::uint32_t>(__cvta_generic_to_shared(stages + stage * plan.stage_chunks * 4));
        Pair highest = make_pair(0, 0, T());
#pragma unroll
        for (int v = 0; v < V; ++v) {
          float(&sum)[kN][4] = sums[kForward ? 0 : v];
          if (m == 0) {
#pragma unroll
            for (int i = 0; i < 4 * kN; ++i) sum[i / 4][i % 4] = 0;
          }
#pragma unroll
          for (int d = 0; d < kDepth; ++d) {
            std::uint32_t windows[4];
            ptx::load_matrices(windows, window + static_cast<std::uint32_t>(places[d] + pitch * v * kWarpBlocks * 16));
#pragma unroll
            for (int j = 0; j < kN; ++j) ptx::multiply_add(sum[j], windows, band[j][d][0], band[j][d][1], T());
          }
          if (m + 1 < M) continue;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            Pair pairs[kN];
#pragma unroll
            for (int j = 0; j < kN; ++j) {
              pairs[j] = make_pair(sum[j][2 * half] + offset, sum[j][2 * half + 1] + offset, T());
              highest = __hmax2_nan(highest, pairs[j]);
            }
            if (!kPlain && light.is_there) {
#pragma unroll
              for (int j = 0; j < kN; ++j)
                pairs[j] = make_pair(light(static_cast<float>(pairs[j].x)), light(static_cast<float>(pairs[j].y)), T());
            }
            const int one = at + (v * kWarpBlocks + half * 8) * kBlock;
            if (inside)
              put_words(reinterpret_cast<std::uint32_t*>(to + one), reinterpret_cast<const std::uint32_t(&)[kN]>(pairs));
            else
              store_pairs(to + one, -one, length - one, pairs);
          }
        }
        if (m + 1 < M) return enter_row(m + 1);
        if (__any_sync(0xffffffffU, !__hbeq2(highest, highest))) {  // a NaN, perhaps from a zero of the band
          __syncwarp();
          for (int i = lane; i < kWarp; i += 32) {
            const int one = t + first_block * kBlock + i;
            if (one < 0 || one >= length) continue;
            const T sum = static_cast<T>(add_taps<kForward>(plan, from, taps, one) + offset);
            to[one] = !kPlain && light.is_there ? static_cast<T>(light(static_cast<float>(sum))) : sum;
          }
        }
      });
  if (!kPlain && epilogue.is_needed() && !light.is_there && thread / 32 < warps)
    finish_stored_last<float>(epilogue, to, length, t + first_block * kBlock, kWarp, channel, lane, 32);
}

}  // namespace polyphase::cuda::depthwise
