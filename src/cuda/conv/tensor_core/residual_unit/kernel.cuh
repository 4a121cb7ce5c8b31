#pragma once
// A residual unit on wgmma (sm_90a) whose middle tensor stays in shared memory (conv/residual_unit.hpp).
//
// gemm_m = positions, gemm_n = output channels, gemm_k = (tap, input channel). A block has kPositions positions of the middle
// and the outputs whose taps all lie in them. Source and middle are in shared memory as vectors of 8 channels, position by
// position: a tap is another start address. The warpgroups load and activate the source, multiply, activate the sums, store
// them as the middle, multiply again and add the source; one thread streams the weights of both convolutions through a ring.
// Where an SM has two blocks, one multiplies while the other loads or stores.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

/// Two neighbouring numbers in a word.
template <class T>
struct Pair16;
template <>
struct Pair16<__half> {
  static __device__ __forceinline__ float2 floats(std::uint32_t word) {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
  static __device__ __forceinline__ std::uint32_t word(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
};
template <>
struct Pair16<__nv_bfloat16> {
  static __device__ __forceinline__ float2 floats(std::uint32_t word) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&word));
  }
  static __device__ __forceinline__ std::uint32_t word(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
};

/// Both numbers of a word activated.
template <class T>
__device__ __forceinline__ std::uint32_t activated_pair(std::uint32_t word, float slope) {
  const float2 v = Pair16<T>::floats(word);
  const auto of = [slope](float value) {
    const float low = slope == 0.0F ? 0.0F : slope * value;  // at infinity too
    return value < 0.0F ? low : value;
  };
  return Pair16<T>::word(of(v.x), of(v.y));
}

/// Shared memory of a block, as addresses and as offsets from its start.
template <class Shape>
struct UnitLayout {
  std::uint32_t base;
  int biases, source, middle, ring;
  __device__ __forceinline__ UnitLayout(std::uint32_t start, const UnitTiling& tiling)
      : base(start),
        biases(Shape::kBarrierBytes),
        source(biases + Shape::kBiasBytes),
        middle(source + tiling.source_pitch * Shape::kVectors * 16),
        ring(middle + tiling.middle_pitch * Shape::kVectors * 16) {}
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(int stage) const {
    return base + static_cast<std::uint32_t>(stage) * 8;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(Shape::kStages + stage); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t stage(int stage) const {
    return base + static_cast<std::uint32_t>(ring + stage * Shape::kStageBytes);
  }
};

/// The stages of weights of both convolutions, which one thread copies to the ring.
template <class Shape>
struct UnitWeights {
  const unsigned char *first, *second;
  int first_stages, stages;
  int next = 0;  // to be copied
  Ring ring{};

  __device__ __forceinline__ UnitWeights(const UnitTiling& tiling, const unsigned char* of_first,
                                         const unsigned char* of_second)
      : first(of_first),
        second(of_second),
        first_stages(tiling.taps[0] * Shape::kParts),
        stages(first_stages + tiling.taps[1] * Shape::kParts) {}
  /// Copies the next stage, if there is one, as soon as its place is free.
  __device__ __forceinline__ void copy(const UnitLayout<Shape>& layout) {
    if (next >= stages) return;
    const unsigned char* from =
        next < first_stages ? first + next * Shape::kStageBytes : second + (next - first_stages) * Shape::kStageBytes;
    ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
    ptx::mbarrier_arrive_expect(layout.full(ring.stage), Shape::kStageBytes);
    ptx::bulk_copy(layout.stage(ring.stage), from, Shape::kStageBytes, layout.full(ring.stage));
    ring.advance(Shape::kStages);
    ++next;
  }
};

/// 8 positions of 8 channels: a thread's part of the source.
struct UnitPatch {
  uint4 rows[8];  // of a channel

  template <class T>
  __device__ __forceinline__ void load(const T* __restrict__ from, std::int64_t pitch, bool exists) {
#pragma unroll
    for (int c = 0; c < 8; ++c) rows[c] = exists ? *reinterpret_cast<const uint4*>(from + c * pitch) : make_uint4(0, 0, 0, 0);
  }
  /// Activated and transposed: 8 vectors of 8 channels.
  template <class T>
  __device__ __forceinline__ void store(unsigned char* to, float slope) const {
    const auto word = [&](int c, int i) {
      const uint4& row = rows[c];
      return i == 0 ? row.x : i == 1 ? row.y : i == 2 ? row.z : row.w;
    };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t active[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) active[c] = activated_pair<T>(word(c, i), slope);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const std::uint32_t halves = odd == 0 ? 0x5410 : 0x7632;
        reinterpret_cast<uint4*>(to)[2 * i + odd] =
            make_uint4(__byte_perm(active[0], active[1], halves), __byte_perm(active[2], active[3], halves),
                       __byte_perm(active[4], active[5], halves), __byte_perm(active[6], active[7], halves));
      }
    }
  }
};

/// Loads the source of a block, which begins at `begin` of its sample. A warp loads up to 8 vectors of channels, whose places
/// are in different banks, of neighbouring blocks of 8 positions.
template <class T, class Shape>
__device__ __forceinline__ void load_unit_source(const UnitTiling& tiling, const T* __restrict__ sample, std::int64_t begin,
                                                 unsigned char* source, int thread) {
  constexpr int kOfWarp = Shape::kVectors < 8 ? Shape::kVectors : 8, kNear = 32 / kOfWarp, kFar = Shape::kVectors / kOfWarp;
  const auto vector_of = [](int i) { return i % kOfWarp + i / 32 % kFar * kOfWarp; };
  const auto block_of = [](int i) { return i / kOfWarp % kNear + i / (32 * kFar) * kNear; };
  const auto load = [&](int i, UnitPatch& patch) {
    const std::int64_t position = begin + block_of(i) * 8;
    patch.load(sample + vector_of(i) * 8 * tiling.length + position, tiling.length, position >= 0 && position < tiling.length);
  };
  const auto store = [&](int i, const UnitPatch& patch) {
    patch.store<T>(source + (vector_of(i) * tiling.source_pitch + block_of(i) * 8) * 16, tiling.slope[0]);
  };
  UnitPatch one, other;
  const int next = thread + Shape::kThreads;  // there are no more than two for a thread
  const bool has_one = block_of(thread) < tiling.source_blocks, has_other = block_of(next) < tiling.source_blocks;
  if (has_one) load(thread, one);
  if (has_other) load(next, other);
  if (has_one) store(thread, one);
  if (has_other) store(next, other);
}

/// sums = the products of a convolution. `source`: the address of the first position of this warpgroup for tap 0.
template <class Operand, class Shape>
__device__ __forceinline__ void multiply_unit(const UnitLayout<Shape>& layout, std::uint32_t source, int pitch, int taps,
                                              int step, int lane, bool copies, UnitWeights<Shape>& weights, Ring& ring,
                                              float (&sums)[Shape::kBlocks][Shape::kChannels / 2]) {
  using Mma = ptx::Wgmma<Operand::kType, Shape::kChannels>;
  const std::uint64_t first = ptx::operand_descriptor(source, static_cast<std::uint32_t>(pitch) * 16);
  std::uint32_t held = 0;  // the barrier of the stage that the products before read
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) ptx::fence_registers(sums[block]);
#pragma unroll 1
  for (int i = 0; i < taps * Shape::kParts; ++i) {
    // All warps have left the stage before the last one, or will soon.
    if (copies && (i >= 2 || weights.next > Shape::kStages)) weights.copy(layout);
    __syncwarp();
    const int tap = i / Shape::kParts, part = i % Shape::kParts;
    const std::uint64_t a = first + static_cast<std::uint32_t>(tap * step + part * Shape::kStageDepths * 2 * pitch);
    const std::uint64_t b = ptx::operand_descriptor(layout.stage(ring.stage), Shape::kChannels * 16);
    ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
    ptx::wgmma_fence();
#pragma unroll
    for (int depth = 0; depth < Shape::kStageDepths; ++depth)
#pragma unroll
      for (int block = 0; block < Shape::kBlocks; ++block)
        Mma::multiply(sums[block], a + static_cast<std::uint32_t>(depth * 2 * pitch + block * 64),
                      b + depth * 2 * Shape::kChannels, i > 0 || depth > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    if (held != 0) ptx::mbarrier_arrive(held);
    held = lane == 0 ? layout.empty(ring.stage) : 0;
    ring.advance(Shape::kStages);
  }
  ptx::wgmma_wait<0>();
  if (held != 0) ptx::mbarrier_arrive(held);
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) ptx::fence_registers(sums[block]);
}

/// Stores sums + bias as matrices of 8 positions and 8 channels: `store(words, block, vector)` gets those of positions 0 and 8
/// of a warp's 16 and of two vectors of channels; `function(word, block, half)` is applied to two rounded numbers of position 0
/// or 8.
template <class T, class Shape, class Function, class Store>
__device__ __forceinline__ void store_unit(const float (&sums)[Shape::kBlocks][Shape::kChannels / 2], const float* biases,
                                           int lane, const Function& function, const Store& store) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int vector = 0; vector < Shape::kVectors; vector += 2) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (vector + i / 2) + 2 * (i % 2);
        const float2 bias = *reinterpret_cast<const float2*>(biases + 8 * (vector + i / 2) + 2 * (lane % 4));
        words[i] = function(Pair16<T>::word(sums[block][at] + bias.x, sums[block][at + 1] + bias.y), block, i % 2);
      }
      store(words, block, vector);
    }
  }
}

/// A thread's part of the outputs: kRows channels of a warp, 8 positions of a lane, and the same in later passes.
template <class T, class Shape>
struct UnitOutputs {
  static constexpr int kWarps = Shape::kThreads / 32, kRows = Shape::kChannels / kWarps,
                       kPasses = (Shape::kPositions + 255) / 256;
  uint4 added[kPasses][kRows];

  [[nodiscard]] static __device__ __forceinline__ int vectors(const UnitTiling& tiling, std::int64_t begin) {
    return static_cast<int>(min(static_cast<std::int64_t>(tiling.tile), tiling.length - begin) / 8);
  }
  /// Loads what is added to the sums: the source.
  __device__ __forceinline__ void load(const UnitTiling& tiling, const T* __restrict__ sample, std::int64_t begin, int warp,
                                       int lane) {
    const int count = vectors(tiling, begin);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int vector = pass * 32 + lane;
        if (vector < count)
          added[pass][i] = *reinterpret_cast<const uint4*>(sample + (warp + i * kWarps) * tiling.length + begin + 8 * vector);
      }
  }
  /// out = source + scale*(the staged sums).
  __device__ __forceinline__ void store(const UnitTiling& tiling, T* __restrict__ out, std::int64_t begin,
                                        const unsigned char* staged, int warp, int lane) const {
    const int count = vectors(tiling, begin);
    const auto add = [&](std::uint32_t x, std::uint32_t y) {
      const float2 a = Pair16<T>::floats(x), b = Pair16<T>::floats(y);
      return Pair16<T>::word(fmaf(tiling.scale, b.x, a.x), fmaf(tiling.scale, b.y, a.y));
    };
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int vector = pass * 32 + lane, channel = warp + i * kWarps;
        if (vector >= count) continue;
        const uint4 sum = *reinterpret_cast<const uint4*>(staged + channel * Shape::kStagedPitch * 2 + vector * 16);
        const uint4& x = added[pass][i];
        ptx::store_vector(out + channel * tiling.length + begin + 8 * vector,
                          make_uint4(add(x.x, sum.x), add(x.y, sum.y), add(x.z, sum.z), add(x.w, sum.w)));
      }
  }
};

/// Prefetches the source of the block that will run after one of these to L2.
template <class T, class Shape>
__device__ __forceinline__ void prefetch_unit_source(const UnitTiling& tiling, const T* __restrict__ x, int thread) {
  const unsigned block = blockIdx.x + static_cast<unsigned>(tiling.resident);
  if (block >= gridDim.x) return;
  constexpr int kLine = 128 / sizeof(T);
  const std::int64_t first =
      static_cast<std::int64_t>(block % static_cast<unsigned>(tiling.tiles)) * tiling.tile - tiling.before;
  const std::int64_t begin = max(first, std::int64_t{0}), end = min(first + tiling.source_blocks * 8, tiling.length);
  const T* sample =
      x + static_cast<std::int64_t>(block / static_cast<unsigned>(tiling.tiles)) * Shape::kChannels * tiling.length;
  for (std::int64_t at = begin + thread / Shape::kChannels * kLine; at < end; at += Shape::kThreads / Shape::kChannels * kLine)
    ptx::prefetch_l2(sample + thread % Shape::kChannels * tiling.length + at);
}

/// Biases may be null. Weights as residual_unit_pack_kernel writes them.
template <class Operand, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    residual_unit_kernel(const __grid_constant__ UnitTiling tiling, const typename Operand::Source* __restrict__ x,
                         const unsigned char* __restrict__ first_weights,
                         const typename Operand::Source* __restrict__ first_bias,
                         const unsigned char* __restrict__ second_weights,
                         const typename Operand::Source* __restrict__ second_bias, typename Operand::Source* __restrict__ out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Operand::Source;
  constexpr int kChannels = Shape::kChannels;
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  unsigned char* memory = raw + (base - ptx::shared_address(raw));
  const UnitLayout<Shape> layout(base, tiling);
  auto* biases = reinterpret_cast<float*>(memory + layout.biases);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 1);
      ptx::mbarrier_init(layout.empty(stage), Shape::kThreads / 32);
    }
    ptx::fence_mbarrier_init();
  }
  for (int i = static_cast<int>(threadIdx.x); i < 2 * kChannels; i += Shape::kThreads) {
    const T* bias = i < kChannels ? first_bias : second_bias;
    biases[i] = bias != nullptr ? static_cast<float>(bias[i % kChannels]) : 0.0F;
  }
  __syncthreads();
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  UnitWeights<Shape> weights(tiling, first_weights, second_weights);
  const bool copies = threadIdx.x == 0;
  if (copies)
    for (int i = 0; i < Shape::kStages; ++i) weights.copy(layout);
  const auto n = static_cast<std::int64_t>(blockIdx.x / static_cast<unsigned>(tiling.tiles));
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x % static_cast<unsigned>(tiling.tiles)) * tiling.tile;
  const std::int64_t of_sample = n * kChannels * tiling.length;
  load_unit_source<T, Shape>(tiling, x + of_sample, begin - tiling.before, memory + layout.source,
                             static_cast<int>(threadIdx.x));
  prefetch_unit_source<T, Shape>(tiling, x, static_cast<int>(threadIdx.x));
  ptx::fence_async_shared();
  __syncthreads();

  const int group_first = warp / 4 * Shape::kBlocks * 64, warp_first = group_first + warp % 4 * 16;
  Ring ring;
  float sums[Shape::kBlocks][kChannels / 2] = {};
  multiply_unit<Operand, Shape>(layout, base + static_cast<std::uint32_t>(layout.source + (tiling.offset + group_first) * 16),
                                tiling.source_pitch, tiling.taps[0], tiling.step[0], lane, copies, weights, ring, sums);
  // Lane 8i + r addresses row r of matrix i: position 8*(i%2) + r of the vector of channels i/2.
  const std::uint32_t to_middle =
      base + static_cast<std::uint32_t>(layout.middle +
                                        (lane / 16 * tiling.middle_pitch + warp_first + lane / 8 % 2 * 8 + lane % 8) * 16);
  // Zeros outside the sample.
  std::uint32_t exists[Shape::kBlocks][2];
  const std::int64_t position = begin - tiling.pad + warp_first + lane / 4;
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t own = position + block * 64 + half * 8;
      exists[block][half] = own >= 0 && own < tiling.length ? ~0U : 0U;
    }
  store_unit<T, Shape>(
      sums, biases, lane,
      [&](std::uint32_t word, int block, int half) { return activated_pair<T>(word, tiling.slope[1]) & exists[block][half]; },
      [&](const std::uint32_t(&words)[4], int block, int vector) {
        ptx::store_matrices(to_middle + static_cast<std::uint32_t>((vector * tiling.middle_pitch + block * 64) * 16), words);
      });
  ptx::fence_async_shared();
  __syncthreads();

  multiply_unit<Operand, Shape>(layout, base + static_cast<std::uint32_t>(layout.middle + group_first * 16),
                                tiling.middle_pitch, tiling.taps[1], tiling.step[1], lane, copies, weights, ring, sums);
  // Transposed: lane 8i + r addresses channel r of matrix i. The source is not read again.
  constexpr int kStagedBytes = Shape::kStagedPitch * 2;  // of a channel
  const std::uint32_t to_staged = base + static_cast<std::uint32_t>(layout.source + (lane / 16 * 8 + lane % 8) * kStagedBytes +
                                                                    (warp_first + lane / 8 % 2 * 8) * 2);
  store_unit<T, Shape>(
      sums, biases + kChannels, lane, [](std::uint32_t word, int, int) { return word; },
      [&](const std::uint32_t(&words)[4], int block, int vector) {
        ptx::store_matrices_transposed(to_staged + static_cast<std::uint32_t>(vector * 8 * kStagedBytes + block * 128), words);
      });
  UnitOutputs<T, Shape> outputs;
  outputs.load(tiling, x + of_sample, begin, warp, lane);
  __syncthreads();
  outputs.store(tiling, out + of_sample, begin, memory + layout.source, warp, lane);
#endif
}

inline constexpr int kUnitPackThreads = 128;

/// packed[tap][vector of 8 input channels][output channel][8] from weights (C, C, K).
template <class T>
__global__ void __launch_bounds__(kUnitPackThreads)
    residual_unit_pack_kernel(int channels, int taps, const T* __restrict__ w, T* __restrict__ packed) {
  const int vectors = channels / 8, i = static_cast<int>(blockIdx.x) * kUnitPackThreads + static_cast<int>(threadIdx.x);
  if (i >= taps * vectors * channels) return;
  const int co = i % channels, vector = i / channels % vectors, tap = i / channels / vectors;
#pragma unroll
  for (int c = 0; c < 8; ++c) packed[i * 8 + c] = w[(static_cast<std::int64_t>(co) * channels + vector * 8 + c) * taps + tap];
}

}  // namespace polyphase::cuda::tensor_core
