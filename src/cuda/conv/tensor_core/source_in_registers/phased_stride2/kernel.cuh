#pragma once
// Forward of stride 2 with four taps on wgmma (sm_90a): weights in shared memory, source in registers. The mathematics are in
// cuda/conv/tap_gemm.hpp. Read source_in_registers/stride1/kernel.cuh first, the same with stride 1.
//
// gemm_m = positions, gemm_n = channels of one class, gemm_k = (row, tap). A unit is the two outputs 2u and 2u + 1. The taps of
// its classes read three neighbours of a row. A thread holds these for two units, so its sums are four neighbouring outputs,
// which are stored directly. There is no conversion pass: each tensor is moved once. One warpgroup copies rows; two multiply
// and store, each its own tiles. In fp32 numbers have two parts and sums two sets.
//
// Shared memory: the weights (32 rows x 2 classes x 2 taps x channels x 2 bytes per step and part; 128 KB for 128 -> 128
// channels); the rest is rings of stages of 32 rows. Roofline: the bytes of the tensors; at 128 channels the products take two
// thirds of that time.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"
#include "cuda/conv/tensor_core/recompute/recompute_block.cuh"
#include "cuda/conv/tensor_core/recompute/suspects.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride2/producer.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased2Threads = (kPhased2Groups + 1) * 128;

/// What the threads of a consumer share, and where a thread's sums belong: positions 2*slot and the next, channels 8*j +
/// 2*(lane%4) and the next.
template <class T>
struct Phased2Store {
  const TapGemm& gemm;
  const Phased2Tiling& tiling;
  ScaledFinish finish;
  const float* biases;
  T* __restrict__ out;
  int slot, lane;

  /// sums[class][4*j + 2*h + b]: position h, channel b.
  template <int kSums>
  __device__ __forceinline__ void store(const Phased2Walk& walk, const float (&sums)[kPhased2Classes][kSums]) const {
    const auto place = walk.place(tiling);
    const std::int64_t first = walk.first_channel(tiling);
    auto left = static_cast<int>(gemm.out_channels - first) - lane % 4 * 2;
    const std::int64_t t = kPhased2Classes * (place.unit + 2 * slot);
    if (t >= gemm.out_length) return;
    T* to = out + row(place.n, walk.group_of_channels(tiling), first + lane % 4 * 2) + t;
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j, left -= 8, to += 6 * gemm.out_length) {
#pragma unroll
      for (int b = 0; b < 2; ++b, to += gemm.out_length) {
        if (b < left) write(to, sums[0][4 * j + b], sums[1][4 * j + b], sums[0][4 * j + 2 + b], sums[1][4 * j + 2 + b]);
      }
    }
  }
  __device__ __forceinline__ std::int64_t row(std::int64_t n, std::int64_t g, std::int64_t channel) const {
    return ((n * gemm.G + g) * gemm.out_channels + channel) * gemm.out_length;
  }
  __device__ __forceinline__ static void write(T* to, float a, float b, float c, float d) {
    if constexpr (sizeof(T) == 4) {
      __stcs(reinterpret_cast<float4*>(to), make_float4(a, b, c, d));
    } else {
      const T four[4] = {static_cast<T>(a), static_cast<T>(b), static_cast<T>(c), static_cast<T>(d)};
      __stcs(reinterpret_cast<uint2*>(to), *reinterpret_cast<const uint2*>(four));
    }
  }

  /// Turns sums into outputs, not yet rounded.
  template <int kSums>
  __device__ __forceinline__ void finish_sums(float (&sums)[kPhased2Classes][kSums]) const {
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const float offset = biases[8 * j + lane % 4 * 2 + b];
#pragma unroll
        for (int r = 0; r < kPhased2Classes; ++r) {
#pragma unroll
          for (int h = 0; h < 2; ++h) sums[r][4 * j + 2 * h + b] = finish.linear(sums[r][4 * j + 2 * h + b], offset);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kPhased2Classes; ++r) finish.template activate<T>(sums[r]);
  }
};

/// Recomputes a warp's suspect outputs one after another. Not inlined, and everything is passed by value or is a kernel
/// parameter: it is rarely called, and must not take registers from its caller.
template <class T, int kRuns>
__device__ __noinline__ void recompute_phases(const TapGemm& gemm, const Phased2Tiling& tiling, const Epilogue& epilogue,
                                              const ExactSource<T>& exact, const T* __restrict__ bias, T* __restrict__ out,
                                              Phased2Walk walk, int slot, Suspects<kRuns> suspects) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto place = walk.place(tiling);
  const std::int64_t g = walk.group_of_channels(tiling);
#pragma unroll 1
  for (int run = 0; run < kRuns; ++run) {
    std::uint32_t own = suspects.of_run[0];
    // Shifts the next ones to where the loop reads them: registers cannot be indexed.
#pragma unroll
    for (int i = 0; i + 1 < kRuns; ++i) suspects.of_run[i] = suspects.of_run[i + 1];
    const int r = run % kPhased2Classes;
    const std::int64_t a = (r - gemm.out_origin) % kPhased2Classes;
    const auto channel_of = [&](int bit, int of) {
      const int i = run / kPhased2Classes * 32 + bit;  // which sum of the class
      return walk.first_channel(tiling) + i / 4 * 8 + of % 4 * 2 + i % 2;
    };
    const auto output_of = [&](int bit, int of) {
      return kPhased2Classes * (place.unit + 2 * (slot - lane / 4 + of / 4) + bit % 4 / 2) + r;
    };
    if constexpr (sizeof(T) == 4) {
      const bool many = has_many(own);
#pragma unroll 1
      for (; own != 0; own &= own - 1) {
        const int bit = __ffs(static_cast<int>(own)) - 1;
        const std::int64_t channel = channel_of(bit, lane), t = output_of(bit, lane);
        if (channel >= gemm.out_channels || t >= gemm.out_length) continue;
        exact.wide.add(gemm, place.n, g, channel * gemm.classes + a, (t - gemm.out_origin - a) / kPhased2Classes, many);
      }
    } else {
      for (;;) {
        const std::uint32_t lanes = __ballot_sync(0xffffffffU, own != 0);
        if (lanes == 0) break;
        const int of = __ffs(static_cast<int>(lanes)) - 1, bit = __shfl_sync(0xffffffffU, __ffs(static_cast<int>(own)) - 1, of);
        if (lane == of) own &= own - 1;
        const std::int64_t channel = channel_of(bit, of), t = output_of(bit, of);
        if (channel >= gemm.out_channels || t >= gemm.out_length) continue;
        const std::int64_t position = (t - gemm.out_origin - a) / kPhased2Classes;
        const float sum = exact_sum(gemm, exact, true, place.n, g, channel * gemm.classes + a, position);
        if (lane != of) continue;
        const auto biased =
            static_cast<T>(sum + (bias != nullptr ? static_cast<float>(bias[g * gemm.out_channels + channel]) : 0.0F));
        out[((place.n * gemm.G + g) * gemm.out_channels + channel) * gemm.out_length + t] =
            static_cast<T>(epilogue.apply(static_cast<float>(biased)));
      }
    }
  }
}

/// A thread's sums of both classes. With two parts those of the high parts, and those of a high and a low part, which are 2^11
/// times what they stand for.
template <class Operand, int kChannels>
struct Phased2Sums {
  float of[Operand::kParts][kPhased2Classes][kChannels / 2] = {};
  __device__ __forceinline__ void fence() {
#pragma unroll
    for (auto& part : of)
#pragma unroll
      for (auto& sums : part) ptx::fence_registers(sums);
  }
  /// The first part = all of the sums.
  __device__ __forceinline__ void join() {
    if constexpr (Operand::kSplit) {
#pragma unroll
      for (int r = 0; r < kPhased2Classes; ++r)
#pragma unroll
        for (int i = 0; i < kChannels / 2; ++i) of[0][r][i] = fmaf(of[1][r][i], 1 / kLowScale, of[0][r][i]);
    }
  }
};

/// The products of 16 rows, as one group: tap j of class r reads elements r + 1 - j for the first position and r + 2 - j for
/// the second.
template <class Operand, int kChannels>
__device__ __forceinline__ void multiply_phased2(const Phased2Words<Operand::kParts>& words, std::uint64_t weights,
                                                 Phased2Sums<Operand, kChannels>& sums) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kChannels, false>;
  constexpr std::uint32_t kOfPart = kPhased2Classes * kPhased2Taps * 2 * kChannels;  // in 16 bytes
  ptx::wgmma_fence();
#pragma unroll
  for (int r = 0; r < kPhased2Classes; ++r) {
#pragma unroll
    for (int j = 0; j < kPhased2Taps; ++j) {
      const std::uint64_t own = weights + static_cast<std::uint32_t>(r * kPhased2Taps + j) * (2 * kChannels);
#pragma unroll
      for (int part = 0; part < Operand::kParts; ++part) {
        const auto& a = words.v[part][r + kPhased2Taps - 1 - j];
        const auto& b = words.v[part][r + kPhased2Taps - j];
        const std::uint32_t fragment[4] = {a[0], b[0], a[1], b[1]};
        Mma::multiply(sums.of[part][r], fragment, own, true);
        if constexpr (Operand::kSplit) {
          if (part == 0) Mma::multiply(sums.of[1][r], fragment, own + kOfPart, true);
        }
      }
    }
  }
  ptx::wgmma_commit();
}

template <class Operand, int kChannels>
__device__ __forceinline__ void consume_phased2(const TapGemm& gemm, const Phased2Tiling& tiling, const Epilogue& epilogue,
                                                const Phased2Layout& layout, const unsigned char* ring,
                                                const ExactSource<typename Operand::Source>& exact,
                                                const typename Operand::Source* __restrict__ bias,
                                                typename Operand::Source* __restrict__ out, const float* biases,
                                                const OperandHeader* __restrict__ source_header,
                                                const OperandHeader* __restrict__ weight_header, int group, int warp,
                                                int lane) {
  using T = typename Operand::Source;
  constexpr std::uint32_t kDepth = Operand::kParts * kPhased2Classes * kPhased2Taps * 2 * kChannels;  // in 16 bytes
  const SampleLook<Operand::kScaled> look(source_header);
  const int exponent = look.exponent(), slot = warp * 8 + lane / 4;
  const int of_weights = Operand::kScaled ? scale_exponent(weight_header->largest, kWeightTarget) : 0;
  const Phased2Store<T> store{gemm, tiling, ScaledFinish(-exponent - of_weights, epilogue), biases, out, slot, lane};
  Phased2Reader<Operand> reader(tiling, exponent, slot, lane);
  const std::uint32_t weight_suspect_count = weight_header->suspect_count;
  const std::uint64_t weights = ptx::operand_descriptor(layout.weights, kChannels * 16);
  ptx::mbarrier_wait(layout.weights_full(), 0);
  if (look.is_mixed()) return;
  Ring at;
#pragma unroll 1
  for (Phased2Walk walk(tiling, group); walk.more(tiling); walk.advance()) {
    Phased2Sums<Operand, kChannels> all;
    all.fence();
    Phased2Words<Operand::kParts> even{}, odd{};
    reader.begin_tile();
    std::uint64_t own = weights;
    // One group of products is outstanding while the operands of the next are converted.
#pragma unroll 1
    for (int left = tiling.count; left > 0; --left, own += kPhased2Depths * kDepth) {
      const unsigned char* stage = ring + at.stage * tiling.stage_bytes;
      typename Phased2Reader<Operand>::Raw raw;
      ptx::mbarrier_wait(layout.full(at.stage), at.parity);
      reader.load(stage, raw);
      ptx::wgmma_wait<1>();
      even.keep();
      reader.convert(raw, even);
      multiply_phased2<Operand, kChannels>(even, own, all);
      reader.load(stage + 16 * Phased2Reader<Operand>::kPitch, raw);
      ptx::wgmma_wait<1>();
      odd.keep();
      reader.convert(raw, odd);
      multiply_phased2<Operand, kChannels>(odd, own + kDepth, all);
      // All reads of the stage are complete: the products that use them are issued.
      ptx::mbarrier_arrive(layout.empty(at.stage));
      at.advance(tiling.stages);
    }
    ptx::wgmma_wait<0>();
    even.keep();
    odd.keep();
    all.fence();
    all.join();
    auto& sums = all.of[0];
    const float unsafe = reader.unsafe_below(static_cast<float>(gemm.rows * kPhased2Taps), weight_suspect_count);
    constexpr int kRuns = kPhased2Classes * ((kChannels + 63) / 64);
    Suspects<kRuns> suspects;
    if (unsafe > 0) {
#pragma unroll
      for (int r = 0; r < kPhased2Classes; ++r) {
#pragma unroll
        for (int i = 0; i < kChannels / 2; ++i)
          suspects.of_run[i / 32 * kPhased2Classes + r] |= !(fabsf(sums[r][i]) >= unsafe) ? 1U << i % 32 : 0U;
      }
    }
    store.finish_sums(sums);
    store.store(walk, sums);
    if (unsafe > 0) recompute_phases(gemm, tiling, epilogue, exact, bias, out, walk, slot, suspects);
  }
}

template <class Operand, int kChannels>
__global__ void __launch_bounds__(kPhased2Threads, 1)
    phased_stride2_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Phased2Tiling tiling,
                          const __grid_constant__ Epilogue epilogue, const typename Operand::Source* __restrict__ source,
                          const typename Operand::Source* __restrict__ bias, typename Operand::Source* __restrict__ out,
                          const OperandHeader* __restrict__ source_header, const OperandHeader* __restrict__ weight_header,
                          const __grid_constant__ ExactSource<typename Operand::Source> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = ptx::shared_address(raw);
  const int group = group_of_block(), warp = warp_of_group(), lane = lane_of_warp();
  const int consumer = group == kPhased2Groups ? warp / 2 : group;
  const Phased2Layout layout(base, tiling, consumer);
  if (group < kPhased2Groups && warp == 0 && lane == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), kPhased2Copiers);
      ptx::mbarrier_init(layout.empty(stage), 128);  // each reader arrives for itself
    }
    if (group == 0) ptx::mbarrier_init(layout.weights_full(), 1);
    ptx::fence_mbarrier_init();
  }
  float* biases = reinterpret_cast<float*>(raw + (layout.bias - base));
  const Phased2Walk walk(tiling, 0);
  if (threadIdx.x < kChannels) {
    const std::int64_t channel = walk.first_channel(tiling) + threadIdx.x;
    const bool exists = bias != nullptr && channel < gemm.out_channels;
    biases[threadIdx.x] =
        exists ? static_cast<float>(bias[walk.group_of_channels(tiling) * gemm.out_channels + channel]) : 0.0F;
  }
  __syncthreads();
  if (group == kPhased2Groups) {
    ptx::registers_down<40>();
    if (warp == 0 && lane == 0) {
      const auto total = static_cast<std::uint32_t>(tiling.weight_bytes);
      const auto* from =
          reinterpret_cast<const unsigned char*>(weight_header + 1) + static_cast<std::int64_t>(walk.weight_tile) * total;
      copy_weights(from, total, layout.weights, layout.weights_full());
    }
    copy_phased2(gemm, tiling, layout, source, MixedExit(Operand::kScaled ? source_header : nullptr), consumer,
                 warp % 2 * 32 + lane);
    return;
  }
  ptx::registers_up<232>();
  wait_for_grid_before();  // for the source's scale
  consume_phased2<Operand, kChannels>(gemm, tiling, epilogue, layout, raw + (layout.ring - base), exact, bias, out, biases,
                                      source_header, weight_header, group, warp, lane);
#endif
}

/// packed[weight tile][step][16 rows][part][class][tap][8 rows][channel][8 of 16 rows]. Row 4*(2*h + e) + q of 16 is at 8*h +
/// 2*q + e, the order of Phased2Reader. Zero where there is no weight.
template <class Operand>
__global__ void __launch_bounds__(kLargestThreads)
    phased_stride2_pack_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Phased2Tiling tiling,
                               const __grid_constant__ ConvProblem problem, const typename Operand::Source* __restrict__ w,
                               OperandHeader* __restrict__ header, uint4* __restrict__ packed) {
  using T = typename Operand::Source;
  const std::int64_t index = blockIdx.x * static_cast<std::int64_t>(kLargestThreads) + threadIdx.x;
  if (index >= tiling.packed_bytes / 16) return;
  std::int64_t rest = index;
  const auto take = [&rest](std::int64_t size) {
    const std::int64_t digit = rest % size;
    rest /= size;
    return digit;
  };
  const std::int64_t own = take(tiling.channels), h = take(2), j = take(kPhased2Taps), r = take(kPhased2Classes),
                     part = take(Operand::kParts);
  const std::int64_t row0 = take(tiling.count * kPhased2Depths) * 16, tile = rest;
  const std::int64_t tiles = tiling.weight_tiles / gemm.G, g = tile / tiles, channel = tile % tiles * tiling.channels + own;
  const std::int64_t k = (r + problem.P_l) % kPhased2Classes + j * kPhased2Classes;
  const int exponent = Operand::kScaled ? scale_exponent(header->largest, kWeightTarget) : 0;
  T values[kPreconvertedRows];
#pragma unroll
  for (int i = 0; i < kPreconvertedRows; ++i) {
    const std::int64_t row = row0 + 4 * (2 * h + i % 2) + i / 2;
    const bool exists = row < gemm.rows && channel < gemm.out_channels;
    values[i] = exists ? w[((g * gemm.rows + row) * gemm.out_channels + channel) * problem.K + k] : T(0.0F);
  }
  uint4 parts[Operand::kParts];
  const std::uint32_t suspect_count = make_operand<Operand>(values, power_of_two(exponent), SplitRange(exponent), parts);
  packed[index] = Operand::kSplit && part == 1 ? parts[Operand::kParts - 1] : parts[0];
  if (part != 0) return;
  if (suspect_count != 0) add_suspect_count(&header->suspect_count, suspect_count);
  if constexpr (Operand::kScaled) add_small_weights(header, suspect_count);
}

}  // namespace polyphase::cuda::tensor_core
