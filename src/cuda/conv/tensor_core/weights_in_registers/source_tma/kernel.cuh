#pragma once
// Forward and dgrad of stride 1 with few columns and short reductions on wgmma (sm_90a); rows are read and written as boxes of
// tensor maps. The mathematics are in cuda/conv/tap_gemm.hpp; weights_in_registers/source_bulk/kernel.cuh is for other strides.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/finish.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/store.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/wgmma_registers.cuh"
#include "cuda/ptx/wgmma_sparse.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kTmaThreads = 4 * 128;
inline constexpr int kTmaSums = kTmaPositions / 2;  // per thread

template <class Operand_, int kDepths_, bool kHalf_, TmaRows kRows_, bool kAux_>
struct TmaMode {
  using Operand = Operand_;
  static constexpr int kDepths = kDepths_;
  static constexpr bool kHalf = kHalf_, kStacked = kHalf_ && Operand::kParts == 2;
  static constexpr TmaRows kRows = kRows_;
  static constexpr bool kAux = kAux_;  // a residual, a derivative's result, or both
  using Aux = std::conditional_t<kAux, TmaAuxes, TmaNoAux>;
  // Both together; other kernels would spill.
  static constexpr bool kBoth = kAux && kRows_ == TmaRows::whole && source_tma_has_both(Operand::kParts, kHalf, kDepths);
  static constexpr bool kMayBeDynamic = kRows_ != TmaRows::any;
  static constexpr bool kSparse = kStacked && kRows_ == TmaRows::whole;    // products of the source's low halves are sparse
  static constexpr int kColumns = kHalf ? 1 : 2;                           // per thread
  static constexpr int kSets = Operand::kParts == 2 && !kStacked ? 2 : 1;  // of weights
  // Tensor cores truncate: with more steps than this, the sums of the first half wait in the staging and are added at the end.
  static constexpr bool kHalves = Operand::kParts == 2 && kDepths > kChainMost;
  static_assert(!kHalves || (kStacked && kDepths <= 2 * kChainMost));

  /// The staged row of column number `half` of a thread.
  __device__ static __forceinline__ int row_of(int warp, int lane, int half) {
    const int own = kRows == TmaRows::whole ? whole_row(lane / 4) : lane / 4;
    return kHalf ? warp * 8 + own : warp * 16 + own + 8 * half;
  }
};

/// The weights of 64 rows of gemm_m as operands of up to kDepths products, padded with zeros.
template <class Mode>
struct TmaWeights {
  std::uint32_t of[Mode::kSets][Mode::kDepths][4];

  /// Turns two consecutive products' fragments into one with both high halves and one with both low halves, and back again.
  __device__ __forceinline__ void exchange() {
#pragma unroll
    for (int i = 0; i < Mode::kDepths; i += 2) {
#pragma unroll
      for (int word = 0; word < 4; word += 2) {
        ptx::exclusive_or(of[0][i][word + 1], of[0][i + 1][word]);
        ptx::exclusive_or(of[0][i + 1][word], of[0][i][word + 1]);
        ptx::exclusive_or(of[0][i][word + 1], of[0][i + 1][word]);
      }
    }
  }

  /// Loads the output of pack_kernel.
  __device__ __forceinline__ void load(const TmaTiling& tiling, const unsigned char* __restrict__ packed, int warp, int lane) {
    const int part = tiling.rows / 8 * tiling.columns;
#pragma unroll
    for (int i = 0; i < Mode::kDepths; ++i) {
      const auto product = static_cast<int>(i < tiling.depths ? tiling.products[i].weights : 0);
#pragma unroll
      for (int set = 0; set < Mode::kSets; ++set) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const int half = word % 2;
          const int row = Mode::row_of(warp, lane, half);
          const int column = tma_column<Mode::kHalf>(tiling, row);
          const int at = product + (Mode::kStacked ? half : set) * part + word / 2 * tiling.columns + column;
          const bool exists = i < tiling.depths && column < tiling.columns && (!Mode::kHalf || Mode::kStacked || half == 0);
          of[set][i][word] = exists ? reinterpret_cast<const std::uint32_t*>(packed)[4 * at + lane % 4] : 0;
        }
      }
    }
  }
};

/// An operand `offset` times 16 bytes further on: one addition in the half of its descriptor that holds the address.
__device__ __forceinline__ std::uint64_t further_operand(std::uint64_t operand, std::uint32_t offset) {
  return (operand & ~std::uint64_t{0xffffffffU}) | (static_cast<std::uint32_t>(operand) + offset);
}

/// All products of a tile; they are outstanding when this returns. `meanwhile` runs during the mixed products. `put_aside`
/// takes the sums of the first half of the steps where the second half starts again from zero (kHalves).
template <class Mode, class Meanwhile, class PutAside>
__device__ __forceinline__ void multiply_tma(const TmaTiling& tiling, std::uint32_t source, TmaWeights<Mode>& weights,
                                             float (&sums)[kTmaSums], const Meanwhile& meanwhile, const PutAside& put_aside) {
  using Mma = ptx::WgmmaFromRegisters<Mode::Operand::kType, kTmaPositions, false>;
  constexpr bool kTwo = Mode::Operand::kParts == 2;
  const std::uint64_t high = ptx::operand_descriptor(source, static_cast<std::uint32_t>(tiling.tile.window) * 16);
  const std::uint64_t low = further_operand(high, static_cast<std::uint32_t>(tiling.tile.items));
  if constexpr (kTwo) {
    if constexpr (Mode::kSparse) weights.exchange();
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Mode::kDepths; ++i) {
      if constexpr (Mode::kSparse) {
        if (i % 2 == 0)
          ptx::multiply_alternating(sums, weights.of[0][i], further_operand(low, tiling.products[i].source), i > 0);
        continue;
      }
      if constexpr (Mode::kSets == 2)
        Mma::multiply(sums, weights.of[1][i], further_operand(high, tiling.products[i].source), i > 0);
      Mma::multiply(sums, weights.of[0][i], further_operand(low, tiling.products[i].source), Mode::kSets == 2 || i > 0);
    }
    ptx::wgmma_commit();
    meanwhile();
    ptx::wgmma_wait<0>();
    ptx::fence_registers(sums);
    if constexpr (Mode::kSparse) weights.exchange();
#pragma unroll
    for (int i = 0; i < kTmaSums; ++i) sums[i] *= Mode::kSparse && i % 4 >= 2 ? 1.0F : 1.0F / kLowScale;
    ptx::fence_registers(sums);
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Mode::kDepths; ++i) {
    const bool begins = Mode::kHalves && i == Mode::kDepths / 2;
    if (begins) {
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::fence_registers(sums);
      put_aside();
      ptx::fence_registers(sums);
      ptx::wgmma_fence();
    }
    Mma::multiply(sums, weights.of[0][i], further_operand(high, tiling.products[i].source), (kTwo || i > 0) && !begins);
  }
  ptx::wgmma_commit();
}

/// Whether one of a warp's sums is suspect in a tile with this suspect count.
template <class Mode>
__device__ __forceinline__ bool is_suspect(const TmaTiling& tiling, SuspectCount suspect_count, int warp, int lane,
                                           const float (&sums)[kTmaSums]) {
  if (suspect_count >= kNeverSplit) return true;
  const float least = least_right<typename Mode::Operand>(suspect_count);
  bool is_suspect_tile = false;
#pragma unroll
  for (int half = 0; half < Mode::kColumns; ++half) {
    float smallest = least;
#pragma unroll
    for (int i = 0; i < kTmaPositions / 4; ++i) {
      const int at = i / 2 * 4 + 2 * half + i % 2;
      smallest = fminf(smallest, fabsf(Mode::kStacked ? fmaf(sums[at + 2], 1.0F / kLowScale, sums[at]) : sums[at]));
    }
    is_suspect_tile = is_suspect_tile ||
                      (smallest < least && tma_column<Mode::kHalf>(tiling, Mode::row_of(warp, lane, half)) < tiling.columns);
  }
  return __any_sync(0xffffffffU, is_suspect_tile) != 0;
}

template <class Mode>
__device__ __forceinline__ void consume_tma(const TapGemm& gemm, const TmaTiling& tiling, const TmaMaps& maps,
                                            const typename Mode::Aux& aux, const TmaLayout& layout,
                                            const unsigned char* __restrict__ packed, const float* __restrict__ bias,
                                            float* __restrict__ out, const OperandHeader* header, const ExactSource<>& exact,
                                            const Epilogue& epilogue, const TmaTiles& tiles, const DynamicOrder& order,
                                            unsigned char* memory, float* staged, int consumer, int warp, int lane) {
  Walk walk(tiling, consumer);
  const std::uint32_t g = tiling.by_column_tiles.divide(walk.tile);
  const auto first_column = static_cast<int>(walk.tile - g * tiling.by_column_tiles.divisor) * tiling.columns;
  const auto* weight_header = reinterpret_cast<const WeightHeader*>(packed);
  TmaWeights<Mode> weights;
  weights.load(tiling, packed + kWeightHeaderBytes + static_cast<std::int64_t>(walk.tile) * tiling.weight_bytes, warp, lane);
  const SuspectCount of_weights = weight_suspect_count(static_cast<Split>(weight_header->split), gemm.rows * gemm.taps);
  const int weight_exponent = scale_exponent(weight_header->largest, kWeightTarget);
  wait_for_grid_before();
  const SampleLook<true> look(header);
  if (look.is_mixed()) return;
  const int exponent = -look.exponent() - weight_exponent;
  const int beyond = exponent < -126 || exponent > 127 ? exponent / 2 : 0;  // no float has it
  constexpr bool kWhole = Mode::kRows == TmaRows::whole;
  TmaColumn columns[Mode::kColumns];
  find_columns<Mode>(gemm, tiling, bias, g, first_column, power_of_two(exponent - beyond), staged, warp, lane, columns);
  SuspectTiles suspect_tiles{
      reinterpret_cast<SuspectTiles::Entry*>(memory + (layout.suspect_tiles(4 * consumer + warp) - layout.base))};
  TmaTurn at(consumer);
  const bool is_dynamic = Mode::kMayBeDynamic && tiling.is_dynamic;
  std::uint32_t last = kNoTile;  // with dynamic tiles: the last that has suspect sums of this warp
  // Through a vote the compiler knows that it is uniform in a warp, and does not test it again for each tile.
  const bool is_rare = __any_sync(0xffffffffU, beyond != 0 || epilogue.is_needed()) != 0;
  const TmaFinish<Mode> finish{epilogue, columns, out, beyond, tiling.columns * kTmaLine * static_cast<int>(sizeof(float)),
                               is_rare};
  constexpr bool kSendsLate = Mode::Operand::kParts == 2;  // a tile is sent during the next one's mixed products
  TmaStaging<Mode> staging{gemm, tiling, maps, layout, staged, consumer, warp, lane};
  for (; is_dynamic || walk.more(); walk.advance()) {
    float sums[kTmaSums];
    ptx::mbarrier_wait(layout.full(at.barrier()), at.parity());
    if (is_dynamic) {
      walk.above = tiles.read(tiles.of_stage(at.stage), lane);
      if (walk.above == kNoTile) {
        if (lane == 0) ptx::mbarrier_arrive(layout.empty(at.barrier()));
        break;
      }
    }
    multiply_tma<Mode>(
        tiling, layout.sources + static_cast<std::uint32_t>(at.stage * tiling.source_bytes), weights, sums,
        [&] { staging.send_staged(); },
        [&] {
          staging.wait_until_sent();
          put_halves_aside<Mode>(sums, staged, warp * 32 + lane);
        });

    const std::uint32_t n = tiling.by_position_tiles.divide(walk.above);
    const std::uint32_t tile = walk.above - n * tiling.by_position_tiles.divisor;
    int first_row =
        static_cast<int>((n * static_cast<std::uint32_t>(gemm.G) + g) * static_cast<std::uint32_t>(gemm.out_channels)) +
        first_column;
    int t0 = static_cast<int>(tile) * tiling.position_step;
    if constexpr (kSendsLate) {  // found here, during the products, not after them
      ptx::opaque(first_row);
      ptx::opaque(t0);
    }
    const SuspectCount suspect_count =
        suspect_count_of_tile(memory + (layout.suspect_count(at.stage) - layout.base), of_weights, lane);
    if constexpr (!Mode::kHalves) staging.wait_until_sent();
    const bool is_end = kWhole ? gemm.out_length % kTmaLine != 0 && t0 + kTmaPositions > static_cast<int>(gemm.out_length)
                               : t0 + kTmaPositions + 3 >= static_cast<int>(gemm.out_length);
    const TmaPlace place{first_row, t0, tile, is_end};
    // The aux operands are loaded into the staging and waited for, one by one.
    if constexpr (!Mode::kHalves) bring_aux<Mode>(staging, aux, 0, epilogue.first_aux(), place, out);
    ptx::wgmma_wait<0>();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(at.barrier()));
    at.advance(tiling.stages);
    ptx::fence_registers(sums);
    if constexpr (Mode::kHalves) {
      add_halves<Mode>(sums, staged, warp * 32 + lane);
      staging.wait();  // all have added theirs
      bring_aux<Mode>(staging, aux, 0, epilogue.first_aux(), place, out);
    }
    bool is_suspect_tile = false;
    if (suspect_count != 0)
      is_suspect_tile = record_suspects<Mode>(tiling, suspect_count, walk, is_dynamic, order, suspect_tiles, last, warp, lane,
                                              is_suspect<Mode>(tiling, suspect_count, warp, lane, sums));
    const bool stays_plain =
        is_suspect_tile || (!is_dynamic && suspect_tiles.count == SuspectTiles::kMost);  // until it is recomputed
    if constexpr (Mode::kAux)
      finish.with_aux(staging, aux, place, sums, stays_plain, at);
    else
      finish.without_aux(staging, place, sums, stays_plain);
    staging.row = first_row;
    staging.t0 = t0;
    if (kSendsLate && !is_end) continue;
    staging.wait();
    if (is_end) {
      float* const first = out + staging.row * gemm.out_length;
      if constexpr (kWhole)
        store_whole(gemm, tiling, staging.t0, staged, first, warp, lane), staging.row = -1;
      else
        store_ends<Mode::kHalf>(gemm, tiling, maps, staging.t0, staged, first, warp * 32 + lane);
    }
    if (staging.row >= 0) staging.send();
  }
  if (staging.row >= 0) {
    staging.wait();
    staging.send();
  }
  if (lane == 0) ptx::bulk_wait();
  ptx::named_barrier(1 + consumer, 128);  // each warp's first thread has stored all warps' sums
  if (suspect_tiles.count != 0 || last != kNoTile)
    recompute_tma<Mode>(gemm, tiling, exact, bias, out, epilogue, order, walk, suspect_tiles, last, exponent, warp);
}

template <class Mode>
__global__ void __launch_bounds__(kTmaThreads, 1)
    source_tma_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ TmaTiling tiling,
                      const __grid_constant__ TmaMaps maps, const __grid_constant__ typename Mode::Aux aux,
                      const unsigned char* __restrict__ packed, const float* __restrict__ bias, float* __restrict__ out,
                      const OperandHeader* header, const __grid_constant__ ExactSource<> exact,
                      const __grid_constant__ Epilogue epilogue, const DynamicOrder order) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char source_tma_memory[];
  const std::uint32_t base = (ptx::shared_address(source_tma_memory) + 1023) & ~1023U;
  unsigned char* memory = source_tma_memory + (base - ptx::shared_address(source_tma_memory));
  // Through a shuffle the compiler knows that it is uniform in a warp; otherwise it serialises the wgmmas.
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0);
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const TmaLayout layout(base, tiling);
  const TmaTiles tiles{reinterpret_cast<volatile std::uint32_t*>(memory + (layout.tiles() - base))};
  if (threadIdx.x == 0) {
    for (int turn = 0; turn < kPairs * kTmaTurns; ++turn) {
      ptx::mbarrier_init(layout.full(turn), 4);
      ptx::mbarrier_init(layout.empty(turn), 4 + 128);  // the warps that multiply, the threads that converted
    }
    for (int stage = 0; stage < tiling.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 1);
      ptx::mbarrier_init(layout.raw_empty(stage), 4);
    }
    for (int consumer = 0; Mode::kAux && consumer < kPairs; ++consumer) ptx::mbarrier_init(layout.aux(consumer), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (group >= 2) {
    ptx::registers_down<64>();
    convert_tma<typename Mode::Operand, Mode::kRows != TmaRows::any, Mode::kSparse>(
        gemm, tiling, maps, layout, memory + (layout.sources - base), memory + (layout.raw - base), header,
        reinterpret_cast<std::uint32_t*>(memory + (layout.suspect_count(0) - base)), tiles, order, group - 2, warp * 32 + lane);
    return;
  }
  ptx::registers_up<192>();
  consume_tma<Mode>(gemm, tiling, maps, aux, layout, packed, bias, out, header, exact, epilogue, tiles, order, memory,
                    reinterpret_cast<float*>(memory + (layout.staging - base) + group * tiling.staging_bytes), group, warp,
                    lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
