#pragma once
// Forward of f32 at f32 accuracy with stride 4 or 8 on wgmma (sm_90a): kernel.cuh with each number as two halves. Read
// kernel.cuh first.
//
// The three products of halves (operand/traits.cuh) need separate sums. Tensor cores truncate, so after every stage the sums of
// high*high are added to f32 totals, and so are those of high*low and low*high, which are 2^11 times too large. Registers have
// room for totals and one set of sums: tiles of 128 units x 128 columns, two warpgroups of 64 units each. The columns are two
// halves, so that the sums of one are added during the products of the other. The low halves of the next stage are loaded
// meanwhile.
//
// One thread streams weights, 51 KB per stage of 16 rows, and the source. Three warps convert the source to halves once per
// tile. A consumer reads them as words of two rows and only moves them to the registers of wgmma.

#include <cstdint>
#include <utility>

#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/recompute/exact_source.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/f32_producer.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/f32_store.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased4F32Threads = (kPhased4Groups + 1) * 128;

/// A thread's sums for the halves of the columns, and for the additional sums of a lone class, which has registers of its own:
/// products of two sizes with the same registers are serialised.
struct Phased4F32Sums {
  float v[2][kPhased4F32Sums], lone[kPhased4F32Sums / 2];
};

/// Whether a group already has products to which the next ones are added.
struct Phased4F32Begun {
  bool v, lone;
};

/// Product kIndex of a stage, if it belongs to this half: one part of the source times one of the weights.
template <int kPattern, int kHalf, bool kLowSource, bool kLowWeights, int kIndex>
__device__ __forceinline__ void multiply_split_chunk(const Phased4F32Words<Phased4F32Layout<kPattern>::kFragments>& words,
                                                     std::uint64_t weights, Phased4F32Sums& sums, Phased4F32Begun& accumulate) {
  using Layout = Phased4F32Layout<kPattern>;
  constexpr Phased4Chunks kChunks = f32_unit_chunks(kPhased4Patterns[kPattern]);
  constexpr Phased4Chunk kOwn = kChunks.of[kIndex];
  constexpr std::uint32_t kAt =
      kChunks.columns_before(kIndex) * kPhased4Rows * 4 + (kLowWeights ? kOwn.columns * kPhased4Rows * 2 : 0);
  using Mma = ptx::WgmmaFromRegisters<ptx::Tensor::f16, kOwn.columns, false>;
  const auto& from = kLowSource ? words.low[kOwn.shift] : words.high[kOwn.shift];
  const std::uint64_t own = (weights + kAt / 16) | static_cast<std::uint64_t>(kOwn.columns) << 16;
  if constexpr (f32_unit_half(kOwn) == kHalf) {
    if constexpr (is_lone(kOwn))
      Mma::multiply(sums.lone, from, own, accumulate.lone);
    else
      Mma::multiply(sums.v[kHalf], from, own, accumulate.v);
    (is_lone(kOwn) ? accumulate.lone : accumulate.v) = true;
  }
}

/// A stage's products of one part of the source and one of the weights, for a half of the columns, as one group. Into fresh
/// sums, or added to existing ones.
template <int kPattern, int kHalf, bool kLowSource, bool kLowWeights>
__device__ __forceinline__ void multiply_split(const Phased4F32Words<Phased4F32Layout<kPattern>::kFragments>& words,
                                               std::uint64_t weights, Phased4F32Sums& sums, bool are_fresh) {
  Phased4F32Begun accumulate{!are_fresh, !are_fresh};
  ptx::wgmma_fence();
  const auto multiply = [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (multiply_split_chunk<kPattern, kHalf, kLowSource, kLowWeights, kIndex>(words, weights, sums, accumulate), ...);
  };
  multiply(std::make_integer_sequence<int, Phased4F32Layout<kPattern>::kProducts>());
  ptx::wgmma_commit();
}

/// totals += factor * sums, for a half of the columns.
template <bool kHasLone, int kHalf>
__device__ __forceinline__ void add_half(float (&totals)[2][kPhased4F32Sums], Phased4F32Sums& sums, float factor) {
  ptx::fence_registers(sums.v[kHalf]);
#pragma unroll
  for (int i = 0; i < kPhased4F32Sums; ++i) totals[kHalf][i] = fmaf(sums.v[kHalf][i], factor, totals[kHalf][i]);
  if constexpr (kHasLone && kHalf == 0) {
    ptx::fence_registers(sums.lone);
#pragma unroll
    for (int i = 0; i < kPhased4F32Sums / 2; ++i)
      totals[0][kPhased4F32Sums / 2 + i] = fmaf(sums.lone[i], factor, totals[0][kPhased4F32Sums / 2 + i]);
  }
}

/// Sums below this magnitude, in the scale of the operands, are suspect (both_in_shared/preconverted/recompute.cuh).
/// suspect_count: of a tile's source, one word per warp.
__device__ __forceinline__ float f32_unit_unsafe(const TapGemm& gemm, uint4 suspect_count, std::uint32_t of_weights) {
  if (((suspect_count.x | suspect_count.y | suspect_count.z | of_weights) & kNever) != 0) return INFINITY;
  const auto small = static_cast<float>(suspect_count.x + suspect_count.y + suspect_count.z) + static_cast<float>(of_weights);
  return 32.0F * fminf(small, static_cast<float>(gemm.rows * gemm.taps));
}

template <int kStride, int kPattern>
__device__ __forceinline__ void consume_f32_units(const TapGemm& gemm, const Phased4Tiling& tiling, const Epilogue& epilogue,
                                                  const Phased4F32Layout<kPattern>& layout, unsigned char* memory,
                                                  const FlaggedSource<float>& exact, const float* bias, float* out,
                                                  const OperandHeader* weight_header, int group, int warp, int lane) {
  using Layout = Phased4F32Layout<kPattern>;
  const int first = group * (kPhased4Positions / kPhased4Groups) + warp * 16;
  const unsigned char* own = memory + Layout::kWeightBytes + ((first + tiling.lead + 1) / 2 + lane / 4) * 64 + lane % 4 * 16;
  const SampleLook<true> look(exact.header);
  if (look.is_mixed()) return;
  const int exponent = look.exponent(), of_weights = scale_exponent(weight_header->largest, kWeightTarget);
  const std::uint32_t weight_suspect_count = weight_header->suspect_count;
  Ring at;
  const auto zero = static_cast<std::uint32_t>(tiling.count >> 31);
#pragma unroll 1
  for (Phased4Walk walk; walk.more(tiling); walk.advance()) {
    float totals[2][kPhased4F32Sums] = {};
    Phased4F32Sums sums{};
    Phased4F32Words<Layout::kFragments> words{};
    int last = 0;
#pragma unroll 1
    for (int left = tiling.count; left > 0; --left) {
      const unsigned char* source = own + static_cast<std::uint32_t>(at.stage) * Layout::kStageBytes;
      const std::uint64_t weights = ptx::operand_descriptor(layout.weights(at.stage), 0);
      ptx::mbarrier_wait(layout.full(at.stage), at.parity);
      // Low halves first: their registers are free while products of the previous stage run.
      load_f32_units(source + kPhased4F32Low, zero, words.low);
      words.keep(words.low);
      ptx::wgmma_wait<0>();
      words.keep(words.high);
      multiply_split<kPattern, 0, true, false>(words, weights, sums, true);
      if (left != tiling.count) ptx::mbarrier_arrive(layout.empty(last));
      load_f32_units(source, zero, words.high);
      add_half<Layout::kHasLone, 1>(totals, sums, 1.0F);
      multiply_split<kPattern, 1, true, false>(words, weights, sums, true);
      words.keep(words.high);
      multiply_split<kPattern, 0, false, true>(words, weights, sums, false);
      multiply_split<kPattern, 1, false, true>(words, weights, sums, false);
      ptx::wgmma_wait<1>();
      add_half<Layout::kHasLone, 0>(totals, sums, 1.0F / kLowScale);
      multiply_split<kPattern, 0, false, false>(words, weights, sums, true);
      ptx::wgmma_wait<1>();
      words.keep(words.low);
      add_half<Layout::kHasLone, 1>(totals, sums, 1.0F / kLowScale);
      multiply_split<kPattern, 1, false, false>(words, weights, sums, true);
      ptx::wgmma_wait<1>();
      add_half<Layout::kHasLone, 0>(totals, sums, 1.0F);
      last = at.stage;
      at.advance(tiling.stages);
    }
    ptx::wgmma_wait<0>();
    words.keep(words.high);
    const float unsafe =
        f32_unit_unsafe(gemm, *reinterpret_cast<const uint4*>(layout.suspect_count_of(memory, last)), weight_suspect_count);
    ptx::mbarrier_arrive(layout.empty(last));
    add_half<Layout::kHasLone, 1>(totals, sums, 1.0F);
    const Phased4Place place = walk.place(tiling);
    Suspects<2> suspects;
    if (unsafe > 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kPhased4F32Sums; ++i) suspects.of_run[half] |= !(fabsf(totals[half][i]) >= unsafe) ? 1U << i : 0U;
      }
    }
    int own_lane = lane, own_first = first;
    ptx::opaque(own_lane);
    ptx::opaque(own_first);
    const std::int64_t channel = place.first_channel + own_lane;
    const float own_bias = bias != nullptr && channel < gemm.out_channels ? bias[place.g * gemm.out_channels + channel] : 0.0F;
    const Phased4F32Store<kStride> store{
        gemm, tiling, ScaledFinish(-exponent - of_weights, epilogue), out, own_first / 2 + own_lane / 4, own_lane};
    store.store(place, totals, own_bias);
    if (unsafe > 0) recompute_f32_units<kStride>(gemm, tiling, exact, place, first, suspects);
  }
}

/// Launched after the sampling of the source. Pointers are not __restrict__: the compiler could move loads before the wait.
template <int kStride, int kPattern>
__global__ void __launch_bounds__(kPhased4F32Threads, 1)
    phased_stride4_f32_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Phased4Tiling tiling,
                              const __grid_constant__ Epilogue epilogue, const __grid_constant__ CUtensorMap map,
                              const float* bias, float* out, const OperandHeader* weight_header,
                              const __grid_constant__ FlaggedSource<float> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  const int group = group_of_block(), warp = warp_of_group(), lane = lane_of_warp();
  using Layout = Phased4F32Layout<kPattern>;
  const Layout layout(base, tiling);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 1 + kPhased4F32Makers);
      ptx::mbarrier_init(layout.empty(stage), kPhased4Groups * 128);  // each reader arrives for itself
    }
    for (int stage = 0; stage < kPhased4F32Raws; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 1);
      ptx::mbarrier_init(layout.raw_empty(stage), kPhased4F32Makers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (group == kPhased4Groups) {
    ptx::registers_down<72>();
    // The copies need no scale: their data was ready before the sampling's launch let this kernel begin.
    if (warp > 0) {
      wait_for_grid_before();
      const SampleLook<true> look(exact.header);
      if (look.is_mixed()) {
        for (int stage = 0; stage < tiling.stages; ++stage) ptx::mbarrier_arrive(layout.full(stage));
        return;
      }
      f32_unit_sources<kPattern>(tiling, layout, raw + (base - ptx::shared_address(raw)), look.exponent(),
                                 (warp - 1) * 32 + lane);
    } else if (lane == 0) {
      copy_f32_units<kPattern>(gemm, tiling, layout, &map, reinterpret_cast<const unsigned char*>(weight_header + 1),
                               exact.header);
    }
  } else {
    ptx::registers_up<216>();
    wait_for_grid_before();
    consume_f32_units<kStride, kPattern>(gemm, tiling, epilogue, layout, raw + (base - ptx::shared_address(raw)), exact, bias,
                                         out, weight_header, group, warp, lane);
  }
#endif
}

/// The packed weights in the order of Phased4Piece; each product has its high halves, then its low ones.
static __global__ void __launch_bounds__(kLargestThreads)
    phased_stride4_f32_pack_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Phased4Tiling tiling,
                                   const __grid_constant__ Phased4Chunks chunks, const float* __restrict__ w,
                                   OperandHeader* __restrict__ header, uint4* __restrict__ packed) {
  const std::int64_t index = blockIdx.x * static_cast<std::int64_t>(kLargestThreads) + threadIdx.x;
  if (index >= tiling.packed_bytes / 32) return;
  const std::int64_t of_depth = tiling.packed_bytes / 32 / tiling.column_tiles / tiling.count;
  const Phased4Piece<float> piece(problem, tiling, chunks, of_depth, index, w);
  const int exponent = scale_exponent(header->largest, kWeightTarget);
  uint4 parts[2];
  const std::uint32_t suspect_count = make_operand<SplitF16>(piece.values, power_of_two(exponent), SplitRange(exponent), parts);
  uint4* to = packed + 2 * (index - piece.at) + piece.at;
  to[0] = parts[0];
  to[2 * piece.columns] = parts[1];
  if (suspect_count != 0) add_suspect_count(&header->suspect_count, suspect_count);
  add_small_weights(header, suspect_count);
}

}  // namespace polyphase::cuda::tensor_core
