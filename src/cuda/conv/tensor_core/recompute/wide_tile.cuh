#pragma once
// The product of the wide kernels: a block of 256 threads multiplies kWideRows rows by kWideWidth rows of numbers, both along
// the reduction, by mma.sync. A row's 16 numbers of a step are contiguous in shared memory.

#include <cuda_bf16.h>

#include <cstdint>

#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mma.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWideRows = 64, kWideWidth = 128;  // of the operands A and B
inline constexpr int kWideDepth = 16;                   // products of a step
inline constexpr int kWideThreads = 256;
inline constexpr int kWideRowBytes = 48;      // 16 numbers, and room so that ldmatrix has no bank conflicts
inline constexpr int kWideM = 2, kWideN = 4;  // fragments of a warp: 32 rows by 32

/// Two blocks need so much of a multiprocessor's memory as shared memory. The rest is the L1 cache, which threads find loads
/// in.
inline constexpr int kWideSharedPercent = 58;

/// The parts of f32 numbers, the largest first: v = the sum of kParts bf16 numbers + e, |e| <= 2^-9*kParts |v|.
template <int kParts>
struct WideStage {
  static constexpr int kBytesA = kWideRows * kWideRowBytes, kBytesB = kWideWidth * kWideRowBytes;
  static constexpr int kBytes = kParts * (kBytesA + kBytesB);
  [[nodiscard]] static constexpr int a(int part) { return part * kBytesA; }
  [[nodiscard]] static constexpr int b(int part) { return kParts * kBytesA + part * kBytesB; }
};

/// Sums of a warp. Lane 4*g + q has rows 16*m + g + {0, 8} of its 32 rows of A and 8*n + 2*q + {0, 1} of its 32 of B.
using WideTileSums = float[kWideM][kWideN][4];

/// Floats from row to row of A where a block's sums are put into shared memory.
inline constexpr int kWidePitch = kWideWidth + 4;
static_assert(kWideRows * kWidePitch * 4 <= 2 * WideStage<2>::kBytes);

/// tile[row of A * kWidePitch + row of B] = a warp's sums.
__device__ __forceinline__ void store_sums(const WideTileSums& sums, float* tile) {
  const auto thread = static_cast<int>(threadIdx.x);
  float* const own = tile + (thread / 32 % 2 * 32 + thread % 32 / 4) * kWidePitch + thread / 64 * 32 + thread % 4 * 2;
#pragma unroll
  for (int m = 0; m < kWideM; ++m) {
#pragma unroll
    for (int n = 0; n < kWideN; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) own[(16 * m + i / 2 * 8) * kWidePitch + 8 * n + i % 2] = sums[m][n][i];
    }
  }
}

/// Splits kCount numbers times `scale` and stores the parts at `to`, `part_bytes` apart.
template <int kParts, int kCount>
__device__ __forceinline__ void store_wide(unsigned char* to, int part_bytes, const float (&values)[kCount], float scale) {
  float left[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) left[i] = values[i] * scale;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    std::uint32_t words[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(left[2 * i], left[2 * i + 1]);
      words[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
      left[2 * i] -= __uint_as_float(words[i] << 16);
      left[2 * i + 1] -= __uint_as_float(words[i] & 0xffff0000U);
    }
    if constexpr (kCount == 8)
      *reinterpret_cast<uint4*>(to + part * part_bytes) = make_uint4(words[0], words[1], words[2], words[3]);
    else
      *reinterpret_cast<uint2*>(to + part * part_bytes) = make_uint2(words[0], words[1]);
  }
}

/// acc += the products of a step. Parts whose indices add up to kParts or more are left out: they are below 2^-9*kParts.
template <int kParts>
__device__ __forceinline__ void multiply_wide(std::uint32_t stage, WideTileSums& acc) {
  using Stage = WideStage<kParts>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int matrix = lane / 8, row = lane % 8;
  const std::uint32_t a_at =
      stage + static_cast<std::uint32_t>((warp % 2 * 32 + row + matrix % 2 * 8) * kWideRowBytes + matrix / 2 * 16);
  const std::uint32_t b_at =
      stage + static_cast<std::uint32_t>((warp / 2 * 32 + row + matrix / 2 * 8) * kWideRowBytes + matrix % 2 * 16);
  const auto load_a = [&](int part, int m, std::uint32_t(&a)[4]) {
    ptx::load_matrices(a, a_at + static_cast<std::uint32_t>(Stage::a(part) + m * 16 * kWideRowBytes));
  };
  const auto load_b = [&](int part, std::uint32_t(&b)[kWideN][2]) {
#pragma unroll
    for (int n = 0; n < kWideN; n += 2) {
      std::uint32_t four[4];
      ptx::load_matrices(four, b_at + static_cast<std::uint32_t>(Stage::b(part) + n * 8 * kWideRowBytes));
      b[n][0] = four[0], b[n][1] = four[1], b[n + 1][0] = four[2], b[n + 1][1] = four[3];
    }
  };
  const auto multiply = [&](int m, const std::uint32_t(&a)[4], const std::uint32_t(&b)[kWideN][2]) {
#pragma unroll
    for (int n = 0; n < kWideN; ++n) ptx::multiply_add(acc[m][n], a, b[n][0], b[n][1], __nv_bfloat16{});
  };
  // The smallest part of B meets the largest of A alone, and then leaves its registers.
  {
    std::uint32_t b[kWideN][2];
    load_b(kParts - 1, b);
#pragma unroll
    for (int m = 0; m < kWideM; ++m) {
      std::uint32_t a[4];
      load_a(0, m, a);
      multiply(m, a, b);
    }
  }
  std::uint32_t b[kParts - 1][kWideN][2];
#pragma unroll
  for (int part = 0; part < kParts - 1; ++part) load_b(part, b[part]);
#pragma unroll
  for (int m = 0; m < kWideM; ++m) {
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
      std::uint32_t a[4];
      load_a(part, m, a);
#pragma unroll
      for (int of_b = min(kParts - 1 - part, kParts - 2); of_b >= 0; --of_b) multiply(m, a, b[of_b]);
    }
  }
}

/// sums = the products of so many steps. `loader` has what this thread loads: load(a, b) reads the next step's four numbers of
/// A and eight of B, which go to a_place() and b_place(), byte offsets in an operand's part. `memory`: two stages.
template <int kParts, class Loader>
__device__ __forceinline__ void sum_wide(Loader& loader, int steps, float a_scale, float b_scale, unsigned char* memory,
                                         WideTileSums& sums) {
  using Stage = WideStage<kParts>;
  // The tensor cores cut a sum off at each product, so sums move to ordinary f32 after at most 16 of them.
  constexpr int kChain = 16 / (kParts * (kParts + 1) / 2);
  WideTileSums acc = {};
  float a[4], b[8];
  const auto store = [&](int step) {
    unsigned char* const stage = memory + step % 2 * Stage::kBytes;
    store_wide<kParts>(stage + Stage::a(0) + loader.a_place(), Stage::kBytesA, a, a_scale);
    store_wide<kParts>(stage + Stage::b(0) + loader.b_place(), Stage::kBytesB, b, b_scale);
  };
  const auto take = [&] {
#pragma unroll
    for (int m = 0; m < kWideM; ++m) {
#pragma unroll
      for (int n = 0; n < kWideN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[m][n][i] += acc[m][n][i];
          acc[m][n][i] = 0.0F;
        }
      }
    }
  };
  const auto base = static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
  if (steps > 0) {
    loader.load(a, b);
    store(0);
  }
  int chain = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    __syncthreads();  // the stage is there, and the other one has been read
    if (step + 1 < steps) loader.load(a, b);
    multiply_wide<kParts>(base + static_cast<std::uint32_t>(step % 2 * Stage::kBytes), acc);
    if (step + 1 < steps) store(step + 1);
    if (++chain == kChain) {
      take();
      chain = 0;
    }
  }
  take();
  __syncthreads();  // both stages have been read
}

}  // namespace polyphase::cuda::tensor_core
