#pragma once
// A residual unit on wgmma (sm_90a) whose middle tensor stays in shared memory (conv/residual_unit.hpp).
//
// gemm_m = positions, gemm_n = output channels, gemm_k = (tap, input channel). A block has kPositions positions of the middle
// and the outputs whose taps all lie in them. Source and middle are in shared memory as vectors of 8 channels, position by
// position: a tap is another start address. The warpgroups load and activate the source, multiply, activate the sums, store
// them as the middle, multiply again and add the source; one thread streams the weights of both convolutions through a ring.
// Where an SM has two blocks, one multiplies while the other loads or stores.

#include <cstdint>
#include <type_traits>

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
  using Pair = __half2;
  static __device__ __forceinline__ float2 floats(Pair pair) { return __half22float2(pair); }
  static __device__ __forceinline__ Pair rounded(float low, float high) { return __floats2half2_rn(low, high); }
};
template <>
struct Pair16<__nv_bfloat16> {
  using Pair = __nv_bfloat162;
  static __device__ __forceinline__ float2 floats(Pair pair) { return __bfloat1622float2(pair); }
  static __device__ __forceinline__ Pair rounded(float low, float high) { return __floats2bfloat162_rn(low, high); }
};
template <class T>
__device__ __forceinline__ typename Pair16<T>::Pair pair_of(std::uint32_t word) {
  return *reinterpret_cast<const typename Pair16<T>::Pair*>(&word);
}
template <class T>
__device__ __forceinline__ float2 floats_of(std::uint32_t word) {
  return Pair16<T>::floats(pair_of<T>(word));
}
template <class Pair>
__device__ __forceinline__ std::uint32_t word_of(Pair pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <class T>
__device__ __forceinline__ std::uint32_t rounded_word(float low, float high) {
  return word_of(Pair16<T>::rounded(low, high));
}

/// Both numbers of a word activated: v < 0 ? slope*v : v.
template <class T, UnitKind kKind>
__device__ __forceinline__ std::uint32_t activated_pair(std::uint32_t word, float slope) {
  const float2 v = floats_of<T>(word);
  if constexpr (kKind == UnitKind::plain) {  // v < slope*v where v is negative; NaN is the maximum of two NaN
    return word_of(__hmax2(pair_of<T>(word), Pair16<T>::rounded(slope * v.x, slope * v.y)));
  } else {
    const auto of = [slope](float value) {
      const float low = slope == 0.0F ? 0.0F : slope * value;  // at infinity too
      return value < 0.0F ? low : value;
    };
    return rounded_word<T>(of(v.x), of(v.y));
  }
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

/// The stages of weights of both convolutions. The warps take turns to copy them to the ring.
template <class Shape>
struct UnitWeights {
  const unsigned char *first, *second;
  int of_first, stages;

  __device__ __forceinline__ UnitWeights(const UnitTiling& tiling, const unsigned char* of_first_conv,
                                         const unsigned char* of_second_conv)
      : first(of_first_conv),
        second(of_second_conv),
        of_first(tiling.taps[0] * Shape::kParts),
        stages(of_first + tiling.taps[1] * Shape::kParts) {}
  /// Warp i begins the barriers of stage i, and copies it. One thread of each warp.
  __device__ __forceinline__ void begin(const UnitLayout<Shape>& layout, int warp) const {
    if (warp >= Shape::kStages) return;
    ptx::mbarrier_init(layout.full(warp), 1);
    ptx::mbarrier_init(layout.empty(warp), Shape::kThreads / 32);
    ptx::fence_mbarrier_init();
    if (warp < stages) copy_to(layout, warp, warp);
  }
  /// Copies stage i >= kStages, if there is one, as soon as its place is free. One thread.
  __device__ __forceinline__ void copy(const UnitLayout<Shape>& layout, int i) const {
    if (i >= stages) return;
    ptx::mbarrier_wait(layout.empty(i % Shape::kStages), (i / Shape::kStages + 1) & 1);
    copy_to(layout, i, i % Shape::kStages);
  }

 private:
  __device__ __forceinline__ void copy_to(const UnitLayout<Shape>& layout, int i, int place) const {
    const unsigned char* const from = i < of_first ? first + i * Shape::kStageBytes : second + (i - of_first) * Shape::kStageBytes;
    ptx::mbarrier_arrive_expect(layout.full(place), Shape::kStageBytes);
    ptx::bulk_copy(layout.stage(place), from, Shape::kStageBytes, layout.full(place));
  }
};

/// `from` + `channel` rows.
template <class T>
__device__ __forceinline__ T* row_at(T* from, std::uint32_t channel, std::uint32_t row_bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(from) + static_cast<std::uint64_t>(channel) * row_bytes);
}

/// kWords words of 2 positions of 8 channels: a thread's part of the source.
template <class T, int kWords>
struct UnitPatch {
  std::uint32_t rows[8][kWords];  // of a channel

  __device__ __forceinline__ void load(const T* __restrict__ from, std::uint32_t row_bytes, bool exists) {
#pragma unroll
    for (std::uint32_t c = 0; c < 8; ++c) {
      const auto* const at = row_at(from, c, row_bytes);
      if constexpr (kWords == 4) {
        const uint4 row = exists ? *reinterpret_cast<const uint4*>(at) : make_uint4(0, 0, 0, 0);
        rows[c][0] = row.x, rows[c][1] = row.y, rows[c][2] = row.z, rows[c][3] = row.w;
      } else {
        static_assert(kWords == 1);
        rows[c][0] = exists ? *reinterpret_cast<const std::uint32_t*>(at) : 0;
      }
    }
  }
  /// Activated and transposed: vectors of 8 channels.
  template <UnitKind kKind>
  __device__ __forceinline__ void store(unsigned char* to, float slope) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      std::uint32_t active[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) active[c] = activated_pair<T, kKind>(rows[c][i], slope);
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

/// A thread's part of a block's source, which begins at `begin` of its sample: first 8 positions of 8 channels, then the rest
/// of the block, 2 positions at a time, by the last warps. A warp has up to 8 vectors of channels, whose places are in different
/// banks, of neighbouring positions.
template <class T, class Shape>
struct UnitSource {
  static constexpr int kOfWarp = Shape::kVectors < 8 ? Shape::kVectors : 8, kNear = 32 / kOfWarp,
                       kFar = Shape::kVectors / kOfWarp;
  static constexpr int kPlaces = Shape::kThreads / Shape::kVectors;
  const T* sample;
  std::int64_t begin, length;
  std::uint32_t row_bytes;
  int vector, place, rest, end;  // positions, from the first of the block's source
  UnitPatch<T, 4> first;
  UnitPatch<T, 1> second;

  __device__ __forceinline__ UnitSource(const UnitTiling& tiling, const T* of_sample, std::int64_t from, int thread)
      : sample(of_sample), begin(from), length(tiling.length), row_bytes(static_cast<std::uint32_t>(tiling.length * 2)) {
    const auto place_of = [](int i) { return i / kOfWarp % kNear + i / (32 * kFar) * kNear; };
    vector = thread % kOfWarp + thread / 32 % kFar * kOfWarp;
    place = place_of(thread) * 8;
    rest = kPlaces * 8 + place_of(Shape::kThreads - 1 - thread) * 2;
    end = tiling.source_blocks * 8;
  }
  /// Loads the first part, and what of the rest fits in the registers.
  __device__ __forceinline__ void load() {
    if (place < end) load(place, first);
    if (rest < end) load(rest, second);
  }
  /// Stores all of it, activated.
  template <UnitKind kKind>
  __device__ __forceinline__ void store(unsigned char* source, int pitch, float slope) {
    unsigned char* const to = source + vector * pitch * 16;
    if (place < end) first.template store<kKind>(to + place * 16, slope);
    if (rest < end) second.template store<kKind>(to + rest * 16, slope);
    for (int at = rest + kPlaces * 2; at < end; at += kPlaces * 2) {
      load(at, second);
      second.template store<kKind>(to + at * 16, slope);
    }
  }

 private:
  template <int kWords>
  __device__ __forceinline__ void load(int at, UnitPatch<T, kWords>& patch) {
    const std::int64_t position = begin + at;
    patch.load(row_at(sample, vector * 8, row_bytes) + position, row_bytes, position >= 0 && position < length);
  }
};

/// sums += the products of a convolution. `source`: the address of the first position of this warpgroup for tap 0; `begun`: the
/// stages of weights before its own.
template <class Operand, class Shape>
__device__ __forceinline__ void multiply_unit(const UnitLayout<Shape>& layout, std::uint32_t source, int pitch, int taps,
                                              int step, int warp, int lane, const UnitWeights<Shape>& weights, int begun,
                                              Ring& ring, float (&sums)[Shape::kBlocks][Shape::kChannels / 2]) {
  using Mma = ptx::Wgmma<Operand::kType, Shape::kChannels>;
  const std::uint64_t first = ptx::operand_descriptor(source, static_cast<std::uint32_t>(pitch) * 16);
  std::uint32_t held = 0;  // the barrier of the stage that the products before read
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) ptx::fence_registers(sums[block]);
#pragma unroll 1
  for (int i = 0; i < taps * Shape::kParts; ++i) {
    // All warps have left the stage before the last one, or will soon.
    const int stage = begun + i;
    if (stage >= 2 && stage % (Shape::kThreads / 32) == warp && lane == 0) weights.copy(layout, stage + Shape::kStages - 2);
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
                      b + depth * 2 * Shape::kChannels, true);
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

/// sums = the biases of their channels.
template <class Shape>
__device__ __forceinline__ void begin_sums(float (&sums)[Shape::kBlocks][Shape::kChannels / 2], const float* biases, int lane) {
#pragma unroll
  for (int vector = 0; vector < Shape::kVectors; ++vector) {
    const float2 bias = *reinterpret_cast<const float2*>(biases + 8 * vector + 2 * (lane % 4));
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sums[block][4 * vector + 2 * half] = bias.x;
        sums[block][4 * vector + 2 * half + 1] = bias.y;
      }
  }
}

/// Stores the rounded sums as matrices of 8 positions and 8 channels: `store(words, block, vector)` gets those of positions 0
/// and 8 of a warp's 16 and of two vectors of channels; `function(word, block, half)` is applied to two rounded numbers of
/// position 0 or 8.
template <class T, class Shape, class Function, class Store>
__device__ __forceinline__ void store_unit(const float (&sums)[Shape::kBlocks][Shape::kChannels / 2], const Function& function,
                                           const Store& store) {
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int vector = 0; vector < Shape::kVectors; vector += 2) {
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * (vector + i / 2) + 2 * (i % 2);
        words[i] = function(rounded_word<T>(sums[block][at], sums[block][at + 1]), block, i % 2);
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
    const auto row_bytes = static_cast<std::uint32_t>(tiling.length * 2);
    const T* const first = row_at(sample, warp, row_bytes) + begin + 8 * lane;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (pass * 32 + lane < count)
          added[pass][i] = ptx::load_vector(row_at(first, i * kWarps, row_bytes) + pass * 256);
  }
  /// out = added + scale*(the staged sums).
  template <UnitKind kKind>
  __device__ __forceinline__ void store(const UnitTiling& tiling, T* __restrict__ out, std::int64_t begin,
                                        const unsigned char* staged, int warp, int lane) const {
    if constexpr (kKind == UnitKind::plain) {  // the same bits
      store_by(tiling, out, begin, staged, warp, lane,
               [](std::uint32_t x, std::uint32_t y) { return word_of(__hadd2(pair_of<T>(x), pair_of<T>(y))); });
    } else {
      store_by(tiling, out, begin, staged, warp, lane, [&](std::uint32_t x, std::uint32_t y) {
        const float2 a = floats_of<T>(x), b = floats_of<T>(y);
        return rounded_word<T>(fmaf(tiling.scale, b.x, a.x), fmaf(tiling.scale, b.y, a.y));
      });
    }
  }

 private:
  template <class Add>
  __device__ __forceinline__ void store_by(const UnitTiling& tiling, T* __restrict__ out, std::int64_t begin,
                                           const unsigned char* staged, int warp, int lane, const Add& add) const {
    const int count = vectors(tiling, begin);
    const auto row_bytes = static_cast<std::uint32_t>(tiling.length * 2);
    T* const first = row_at(out, warp, row_bytes) + begin + 8 * lane;
    const unsigned char* const sums = staged + warp * Shape::kStagedPitch * 2 + lane * 16;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (pass * 32 + lane >= count) continue;
        const uint4 sum = *reinterpret_cast<const uint4*>(sums + i * kWarps * Shape::kStagedPitch * 2 + pass * 512);
        const uint4& x = added[pass][i];
        ptx::store_vector(row_at(first, i * kWarps, row_bytes) + pass * 256,
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
template <class Operand, UnitKind kKind, class Shape>
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
  const int thread = static_cast<int>(threadIdx.x), warp = __shfl_sync(0xffffffffU, thread / 32, 0), lane = thread % 32;
  const UnitWeights<Shape> weights(tiling, first_weights, second_weights);
  if (lane == 0) weights.begin(layout, warp);
  __syncwarp();
  const auto n = static_cast<std::int64_t>(blockIdx.x / static_cast<unsigned>(tiling.tiles));
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x % static_cast<unsigned>(tiling.tiles)) * tiling.tile;
  const std::int64_t of_sample = n * kChannels * tiling.length;
  auto* const biases = reinterpret_cast<float*>(memory + layout.biases);
  {
    static_assert(2 * kChannels <= Shape::kThreads);
    const T* const bias = thread < kChannels ? first_bias : second_bias;
    const float own = thread < 2 * kChannels && bias != nullptr ? static_cast<float>(bias[thread % kChannels]) : 0.0F;
    UnitSource<T, Shape> source(tiling, x + of_sample, begin - tiling.before, thread);
    source.load();
    prefetch_unit_source<T, Shape>(tiling, x, thread);
    if (thread < 2 * kChannels) biases[thread] = own;
    source.template store<kKind>(memory + layout.source, tiling.source_pitch, tiling.slope[0]);
  }
  ptx::fence_async_shared();
  __syncthreads();

  const int group_first = warp / 4 * Shape::kBlocks * 64, warp_first = group_first + warp % 4 * 16;
  Ring ring;
  float sums[Shape::kBlocks][kChannels / 2];
  begin_sums<Shape>(sums, biases, lane);
  multiply_unit<Operand, Shape>(layout, base + static_cast<std::uint32_t>(layout.source + (tiling.offset + group_first) * 16),
                                tiling.source_pitch, tiling.taps[0], tiling.step[0], warp, lane, weights, 0, ring, sums);
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
      sums,
      [&](std::uint32_t word, int block, int half) {
        return activated_pair<T, kKind>(word, tiling.slope[1]) & exists[block][half];
      },
      [&](const std::uint32_t(&words)[4], int block, int vector) {
        ptx::store_matrices(to_middle + static_cast<std::uint32_t>((vector * tiling.middle_pitch + block * 64) * 16), words);
      });
  begin_sums<Shape>(sums, biases + kChannels, lane);
  ptx::fence_async_shared();
  __syncthreads();

  multiply_unit<Operand, Shape>(layout, base + static_cast<std::uint32_t>(layout.middle + group_first * 16),
                                tiling.middle_pitch, tiling.taps[1], tiling.step[1], warp, lane, weights, weights.of_first, ring,
                                sums);
  UnitOutputs<T, Shape> outputs;
  if constexpr (kKind == UnitKind::plain) outputs.load(tiling, x + of_sample, begin, warp, lane);
  // Transposed: lane 8i + r addresses channel r of matrix i. The source is not read again.
  constexpr int kStagedBytes = Shape::kStagedPitch * 2;  // of a channel
  const std::uint32_t to_staged = base + static_cast<std::uint32_t>(layout.source + (lane / 16 * 8 + lane % 8) * kStagedBytes +
                                                                    (warp_first + lane / 8 % 2 * 8) * 2);
  store_unit<T, Shape>(
      sums, [](std::uint32_t word, int, int) { return word; },
      [&](const std::uint32_t(&words)[4], int block, int vector) {
        ptx::store_matrices_transposed(to_staged + static_cast<std::uint32_t>(vector * 8 * kStagedBytes + block * 128), words);
      });
  __syncthreads();
  if constexpr (kKind == UnitKind::any) outputs.load(tiling, x + of_sample, begin, warp, lane);  // fewer registers
  outputs.template store<kKind>(tiling, out + of_sample, begin, memory + layout.source, warp, lane);
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
