#pragma once
// Forward and dgrad with few columns and short reductions on wgmma (sm_90a): weights in registers. The mathematics are in
// cuda/conv/tap_gemm.hpp; both_in_shared/stationary/kernel.cuh is the form for longer reductions.
//
// gemm_m = 64 columns, gemm_n = 128 positions, gemm_k = (tap, plane, row), all of it one stage. Of four warpgroups one copies
// rows, one converts them, two multiply and store, in turn a tile each. Two parts: the mixed products come first, are scaled
// down in the registers, and high*high is added to them. Of at most 32 columns the high and the low halves of weights are
// gemm_m's rows r and r + 8, which are sums of one thread: two products instead of three.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/recompute/finish_tiles.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/aux_rows.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/layout.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/store.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/store_strided.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kNarrowThreads = 512;
inline constexpr int kNarrowSums = kNarrowPositions / 2;  // of a thread

/// How outputs are staged: as rows, as vectors with a bias at every second place, or as rows of stride 1 with a residual or
/// through a derivative, which is brought there.
enum class NarrowStore { rows, spread, late };

/// The weights of 64 rows of gemm_m as operands of up to kDepths products; zeros in what is left of them.
template <class Operand, int kDepths, bool kStacked>
struct NarrowWeights {
  static constexpr int kSets = Operand::kParts == 2 && !kStacked ? 2 : 1;
  std::uint32_t of[kSets][kDepths][4];

  /// From what pack_kernel wrote.
  __device__ __forceinline__ void load(const NarrowSteps& steps, const unsigned char* __restrict__ packed, int warp, int lane) {
    const int part = steps.rows / Operand::kVector * steps.columns;
#pragma unroll
    for (int i = 0; i < kDepths; ++i) {
      const auto product = static_cast<int>(i < steps.depths ? steps.products[i].weights : 0);
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const int half = word % 2;
          const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
          const int at = product + (kStacked ? half : set) * part + word / 2 * steps.columns + column;
          of[set][i][word] = 0;
          if (i < steps.depths && column < steps.columns)
            of[set][i][word] = reinterpret_cast<const std::uint32_t*>(packed)[4 * at + lane % 4];
        }
      }
    }
  }
};

/// All products of a tile; the sums are under way when this returns.
template <class Operand, int kDepths, bool kStacked>
__device__ __forceinline__ void multiply_narrow(const NarrowSteps& steps, std::uint32_t source, std::uint32_t zeros,
                                                const NarrowWeights<Operand, kDepths, kStacked>& weights,
                                                float (&sums)[kNarrowSums]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kNarrowPositions, false>;
  const std::uint64_t high = ptx::operand_descriptor(source, static_cast<std::uint32_t>(steps.tile.window) * 16);
  const std::uint64_t low = high + static_cast<std::uint32_t>(steps.tile.items);
  const std::uint64_t nothing = (zeros >> 4) & 0x3fff;  // 128 bytes, again and again
  const auto at = [&](std::uint64_t from, int i) {
    if (Operand::kScaled || i < steps.depths) return from + steps.products[i].source;
    return nothing;
  };
  constexpr int kLast = NarrowWeights<Operand, kDepths, kStacked>::kSets - 1;
  if constexpr (Operand::kParts == 2) {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepths; ++i) {
      if constexpr (kLast == 1) Mma::multiply(sums, weights.of[1][i], at(high, i), i > 0);
      Mma::multiply(sums, weights.of[0][i], at(low, i), kLast == 1 || i > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::settle(sums);
#pragma unroll
    for (float& sum : sums) sum *= 1.0F / kLowScale;
    ptx::settle(sums);
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kDepths; ++i) Mma::multiply(sums, weights.of[0][i], at(high, i), Operand::kParts == 2 || i > 0);
  ptx::wgmma_commit();
}

/// A consumer's finished sums into its staging, whole rows of each channel.
template <class T, bool kStacked>
__device__ __forceinline__ void stage_narrow(const TapGemm& form, const NarrowSteps& steps, const NarrowRows<T>& rows,
                                             float factor, const float (&offsets)[2], const float (&blanks)[2], T* staging,
                                             int warp, int lane, const float (&sums)[kNarrowSums]) {
  constexpr int kHalves = kStacked ? 1 : 2;
  const auto stride = static_cast<int>(form.out_stride), classes = static_cast<int>(form.classes);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
    const auto channel = static_cast<int>(steps.by_classes.divide(static_cast<std::uint32_t>(column)));
    const int a = column - channel * classes;
    const bool exists = channel < steps.channels;
    T* const row = staging + (exists ? channel : 0) * steps.out_pitch + rows.lead(channel);
    const int quad = 2 * (lane % 4);
    const NarrowColumn<T> to{row + a + quad * stride, factor, offsets[half], stride};
    const bool is_paired = stride == 1 && rows.is_even();
    if (exists) {
      const auto stage = [&](auto paired) {
#pragma unroll
        for (int i = 0; i < kNarrowPositions / 8; ++i) {
          const int at = 4 * i + 2 * half;
          float even = sums[at], odd = sums[at + 1];
          if constexpr (kStacked) {
            even = fmaf(sums[at + 2], 1.0F / kLowScale, even);
            odd = fmaf(sums[at + 3], 1.0F / kLowScale, odd);
          }
          to.template put<decltype(paired)::value>(8 * i, even, odd);
        }
      };
      if (is_paired)
        stage(std::true_type());
      else
        stage(std::false_type());
      // Phases without taps: the bias, activated.
      if (a == classes - 1 && stride > classes) {
        const T nothing = static_cast<T>(blanks[half]);
#pragma unroll 1
        for (int r = classes; r < stride; ++r) {
#pragma unroll 8
          for (int i = 0; i < kNarrowPositions / 8; ++i) {
            row[(8 * i + quad) * stride + r] = nothing;
            row[(8 * i + quad + 1) * stride + r] = nothing;
          }
        }
      }
    }
  }
}

/// Which of a warp's columns have a sum that may be wrong in a tile with such faults: bits as WrongTiles::add() wants them.
template <class Operand, bool kStacked>
__device__ __forceinline__ std::uint32_t doubtful_columns(const NarrowSteps& steps, Faults faults, float scale, int warp,
                                                          int lane, const float (&sums)[kNarrowSums]) {
  if (faults >= kNeverFault) return WrongTiles::kAnyColumn;
  const float least = least_right<Operand>(faults) * scale;
  bool doubts = false;
#pragma unroll
  for (int half = 0; half < (kStacked ? 1 : 2); ++half) {
    float smallest = least;
#pragma unroll
    for (int i = 0; i < kNarrowPositions / 4; ++i) {
      const int at = i / 2 * 4 + 2 * half + i % 2;
      smallest = fminf(smallest, fabsf(kStacked ? fmaf(sums[at + 2], 1.0F / kLowScale, sums[at]) : sums[at]));
    }
    const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
    doubts = doubts || (smallest < least && column < steps.columns);
  }
  const std::uint32_t lanes = __ballot_sync(0xffffffffU, doubts);  // four of a column
  std::uint32_t columns = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) columns |= (lanes >> 4 * i & 0xfU) != 0 ? 1U << i : 0U;
  return columns;
}

template <class Operand, int kDepths, bool kStacked, NarrowStore kStore>
__device__ __forceinline__ void consume_narrow(const TapGemm& form, const NarrowSteps& steps, const NarrowLayout& layout,
                                               const unsigned char* __restrict__ packed,
                                               const typename Operand::Source* __restrict__ bias, const Epilogue& epilogue,
                                               typename Operand::Source* __restrict__ out, const OperandHeader* header,
                                               const ExactSource& exact, const NarrowTiles& tiles, const DrawnOrder& order,
                                               unsigned char* memory, typename Operand::Source* staging, int consumer, int warp,
                                               int lane) {
  using T = typename Operand::Source;
  constexpr bool kSpread = kStore == NarrowStore::spread, kLate = kStore == NarrowStore::late;
  const auto* state = reinterpret_cast<const State*>(packed);
  packed += kWeightHeaderBytes;
  Walk walk(steps, consumer);
  NarrowWeights<Operand, kDepths, kStacked> weights;
  weights.load(steps, packed + static_cast<std::int64_t>(walk.tile) * steps.weight_bytes, warp, lane);
  float offsets[2] = {};
  if (bias != nullptr) {
    const TilePlace place = walk.place(steps);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto column = static_cast<std::uint32_t>(place.column) +
                          static_cast<std::uint32_t>(kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half);
      if (column < form.columns)
        offsets[half] = static_cast<float>(bias[place.g * form.out_channels + steps.by_classes.divide(column)]);
    }
  }
  const LightActivation activation(epilogue);
  const bool is_active = !kSpread && activation.is_there;
  float blanks[2] = {offsets[0], offsets[1]};
  if (is_active) {
#pragma unroll
    for (float& blank : blanks) blank = activation(static_cast<float>(static_cast<T>(blank)));
  }
  if constexpr (Operand::kScaled) wait_for_grid_before();
  const int exponent = Operand::kScaled ? -source_exponent(header) - scale_exponent(state->weight_largest, kWeightTarget) : 0;
  // Exponents that no float has are put into the sums in two steps.
  const float first_factor = power_of_two(exponent < -126 || exponent > 127 ? exponent / 2 : 0);
  const float factor = power_of_two(exponent < -126 || exponent > 127 ? exponent - exponent / 2 : exponent);
  const Faults of_weights =
      Operand::kScaled ? weight_faults(static_cast<Split>(state->weight_split), form.rows * form.planes * form.taps) : 0;
  if constexpr (kSpread) staging += warp * kSpreadRows * steps.out_pitch;
  const auto meet = [&] {
    if (steps.is_by_warps)
      __syncwarp();
    else
      ptx::named_barrier(1 + consumer, 128);
  };
  WrongTiles wrong{reinterpret_cast<WrongTiles::Entry*>(memory + (layout.wrong(4 * consumer + warp) - layout.base))};
  Ring ring;
  if (consumer == 1) ring.advance(steps.stages);

  for (; steps.is_drawn || walk.more(); walk.advance()) {
    float sums[kNarrowSums];
    ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
    if (steps.is_drawn) {
      walk.above = tiles.read(tiles.of_stage(ring.stage), lane);
      if (!walk.more()) break;
    }
    if constexpr (kLate) {
      ptx::bulk_wait_read();
      meet();
      const std::int64_t distance = epilogue.residual + epilogue.derivative;  // one of them is zero
      const auto rows_of = [&](const Walk& of) { return NarrowRows<T>(form, steps, of.place(steps), out); };
      bring_narrow_rows<T>(steps, rows_of(walk), distance, staging, warp, lane);
      Walk next = walk;
      next.advance();
      if (!steps.is_drawn && next.more()) prefetch_narrow_rows<T>(steps, rows_of(next), distance, warp, lane);
    }
    multiply_narrow(steps, layout.sources + static_cast<std::uint32_t>(ring.stage * steps.source_bytes), layout.zeros, weights,
                    sums);

    Faults faults = 0;
    if constexpr (Operand::kScaled) faults = faults_of_tile(memory + layout.faults(ring.stage) - layout.base, of_weights, lane);
    const NarrowRows<T> rows(form, steps, walk.place(steps), out);
    ptx::wgmma_wait<0>();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(ring.stage));
    ring.advance(steps.stages);
    ring.advance(steps.stages);
    // Until the staging is free again may take long: by now the source is given back.
    if constexpr (kStore == NarrowStore::rows) ptx::bulk_wait_read();
    if constexpr (kLate) ptx::copy_wait<0>();
    if constexpr (!kSpread) meet();
    ptx::settle(sums);
    if (Operand::kScaled && first_factor != 1.0F) {
#pragma unroll
      for (float& sum : sums) sum *= first_factor;
    }
    // What will be looked at again is stored bare, so that it tells its sums, and finished behind that.
    bool activates = kLate || is_active;
    if constexpr (Operand::kScaled) {
      activates = activates && wrong.count < WrongTiles::kMost;
      if (faults != 0) {
        const std::uint32_t columns = doubtful_columns<Operand, kStacked>(steps, faults, first_factor, warp, lane, sums);
        if (columns != 0 && steps.is_drawn)
          order.add(steps, walk, warp, faults, columns, wrong);
        else if (columns != 0)
          wrong.add(walk.above, faults, columns);
        activates = activates && columns == 0;
      }
    }
    if constexpr (kSpread) {
      stage_and_store_spread<T>(steps, rows, factor, offsets, staging, warp, lane, sums);
    } else {
      float own_factor = factor, own_offsets[2] = {offsets[0], offsets[1]};
      if (!kLate && activates) activate_narrow<T, kStacked>(activation, own_factor, own_offsets, sums);
      if (kLate && activates)
        stage_narrow_beside<T, kStacked>(steps, rows, factor, offsets, FinishBeside<T>(epilogue), staging, warp, lane, sums);
      else
        stage_narrow<T, kStacked>(form, steps, rows, own_factor, own_offsets, blanks, staging, warp, lane, sums);

      if (steps.stores_bulk) ptx::fence_async_shared();
      meet();
      store_narrow_rows<T>(steps, rows, staging, warp, lane);
      if (steps.stores_bulk) ptx::bulk_commit();
    }
  }
  ptx::bulk_wait();
  if constexpr (Operand::kScaled) {
    meet();                                      // a warp may have stored another's sums
    constexpr int kColumns = kStacked ? 8 : 16;  // of a warp
    if (steps.is_drawn && wrong.count != 0) walk.above = wrong.of[0].above;
    while (wrong.count != 0) {
      const std::uint32_t before = steps.is_drawn ? order.recall(steps, walk, warp, wrong) : kNoTile;
      repair_tiles<Operand>(form, steps, exact, bias, out, walk, wrong, exponent, warp * kColumns, kColumns, kNarrowPositions);
      if (kLate || is_active)
        finish_tiles<kLate>(form, steps, epilogue, out, walk, wrong, warp * kColumns, kColumns, kNarrowPositions);
      if (before == kNoTile) break;
      walk.above = before;
    }
  }
}

template <class Operand, int kDepths, bool kStacked, NarrowStore kStore>
__global__ void __launch_bounds__(kNarrowThreads, 1)
    narrow_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ NarrowSteps steps,
                  const typename Operand::Source* __restrict__ source, const unsigned char* __restrict__ packed,
                  const typename Operand::Source* __restrict__ bias, const __grid_constant__ Epilogue epilogue,
                  typename Operand::Source* __restrict__ out, const OperandHeader* header,
                  const __grid_constant__ ExactSource exact, const DrawnOrder order) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Operand::Source;
  extern __shared__ __align__(16) unsigned char narrow_memory[];
  const std::uint32_t base = (ptx::shared_address(narrow_memory) + 127) & ~127U;
  unsigned char* memory = narrow_memory + (base - ptx::shared_address(narrow_memory));
  // Through a shuffle the compiler knows them to be the same in a warp; else it serialises the wgmmas.
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0);
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const NarrowLayout layout(base, steps);
  const NarrowTiles tiles{reinterpret_cast<volatile std::uint32_t*>(memory + (layout.tiles() - base))};
  if (threadIdx.x < 32) reinterpret_cast<std::uint32_t*>(memory + (layout.zeros - base))[lane] = 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < steps.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), kConverters);
      ptx::mbarrier_init(layout.empty(stage), 4);
    }
    for (int stage = 0; stage < steps.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 4);
      ptx::mbarrier_init(layout.raw_empty(stage), kConverters);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::fence_async_shared();
  __syncthreads();
  if (group == 2) {
    ptx::registers_down<80>();
    if (Operand::kScaled || steps.is_drawn) wait_for_grid_before();
    narrow_convert<Operand>(form, steps, layout, memory + (layout.sources - base), memory + (layout.raw - base), source, header,
                            reinterpret_cast<std::uint32_t*>(memory + (layout.faults(0) - base)), tiles, warp * 32 + lane);
    return;
  }
  if (group == 3) {
    ptx::registers_down<32>();
    narrow_copy<T>(form, steps, layout, source, tiles, order, warp, lane);
    return;
  }
  ptx::registers_up<200>();
  consume_narrow<Operand, kDepths, kStacked, kStore>(
      form, steps, layout, packed, bias, epilogue, out, header, exact, tiles, order, memory,
      reinterpret_cast<T*>(memory + (layout.staging - base) + group * steps.staging_bytes), group, warp, lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
