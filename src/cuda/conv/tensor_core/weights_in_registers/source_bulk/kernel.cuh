#pragma once
// Forward and dgrad with few columns and short reductions on wgmma (sm_90a): weights in registers. The mathematics are in
// cuda/conv/tap_gemm.hpp; both_in_shared/stationary/kernel.cuh is for longer reductions.
//
// gemm_m = 64 columns, gemm_n = 128 positions, gemm_k = (tap, plane, row), all in one stage. A block has four warpgroups: one
// copies rows, one converts them, and two multiply and store, one tile each in turn. Two parts: the mixed products come first,
// are scaled down in registers, and high*high is added to them. With at most 32 columns the high and the low halves of weights
// are rows r and r + 8 of gemm_m, whose sums belong to one thread: two products instead of three.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/operand/convert_rows.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/recompute/finish_tiles.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/aux_rows.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/layout.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/store.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_bulk/store_strided.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kBulkThreads = 512;
inline constexpr int kBulkSums = kBulkPositions / 2;  // per thread

/// How outputs are staged: as rows, as vectors with a bias at every second place, or as rows of stride 1 with a residual or a
/// derivative, which is loaded there.
enum class BulkStore { rows, spread, aux };

/// The weights of 64 rows of gemm_m as operands of up to kDepths products, padded with zeros.
template <class Operand, int kDepths, bool kStacked>
struct BulkWeights {
  static constexpr int kSets = Operand::kParts == 2 && !kStacked ? 2 : 1;
  std::uint32_t of[kSets][kDepths][4];

  /// Loads the output of pack_kernel.
  __device__ __forceinline__ void load(const BulkTiling& tiling, const unsigned char* __restrict__ packed, int warp, int lane) {
    const int part = tiling.rows / Operand::kVector * tiling.columns;
#pragma unroll
    for (int i = 0; i < kDepths; ++i) {
      const auto product = static_cast<int>(i < tiling.depths ? tiling.products[i].weights : 0);
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const int half = word % 2;
          const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
          const int at = product + (kStacked ? half : set) * part + word / 2 * tiling.columns + column;
          of[set][i][word] = 0;
          if (i < tiling.depths && column < tiling.columns)
            of[set][i][word] = reinterpret_cast<const std::uint32_t*>(packed)[4 * at + lane % 4];
        }
      }
    }
  }
};

/// All products of a tile; they are outstanding when this returns.
template <class Operand, int kDepths, bool kStacked>
__device__ __forceinline__ void multiply_bulk(const BulkTiling& tiling, std::uint32_t source, std::uint32_t zeros,
                                              const BulkWeights<Operand, kDepths, kStacked>& weights,
                                              float (&sums)[kBulkSums]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kBulkPositions, false>;
  const std::uint64_t high = ptx::operand_descriptor(source, static_cast<std::uint32_t>(tiling.tile.window) * 16);
  const std::uint64_t low = high + static_cast<std::uint32_t>(tiling.tile.items);
  const std::uint64_t nothing = (zeros >> 4) & 0x3fff;  // the same 128 bytes again and again
  const auto at = [&](std::uint64_t from, int i) {
    if (Operand::kScaled || i < tiling.depths) return from + tiling.products[i].source;
    return nothing;
  };
  constexpr int kLast = BulkWeights<Operand, kDepths, kStacked>::kSets - 1;
  if constexpr (Operand::kParts == 2) {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepths; ++i) {
      if constexpr (kLast == 1) Mma::multiply(sums, weights.of[1][i], at(high, i), i > 0);
      Mma::multiply(sums, weights.of[0][i], at(low, i), kLast == 1 || i > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::fence_registers(sums);
#pragma unroll
    for (float& sum : sums) sum *= 1.0F / kLowScale;
    ptx::fence_registers(sums);
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kDepths; ++i) Mma::multiply(sums, weights.of[0][i], at(high, i), Operand::kParts == 2 || i > 0);
  ptx::wgmma_commit();
}

/// Writes a consumer's finished sums into its staging, as whole rows of each channel.
template <class T, bool kStacked>
__device__ __forceinline__ void stage_bulk(const TapGemm& gemm, const BulkTiling& tiling, const BulkRows<T>& rows, float factor,
                                           const float (&offsets)[2], const float (&blanks)[2], T* staging, int warp, int lane,
                                           const float (&sums)[kBulkSums]) {
  constexpr int kHalves = kStacked ? 1 : 2;
  const auto stride = static_cast<int>(gemm.out_stride), classes = static_cast<int>(gemm.classes);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
    const auto channel = static_cast<int>(tiling.by_classes.divide(static_cast<std::uint32_t>(column)));
    const int a = column - channel * classes;
    const bool exists = channel < tiling.channels;
    T* const row = staging + (exists ? channel : 0) * tiling.out_pitch + rows.lead(channel);
    const int quad = 2 * (lane % 4);
    const BulkColumn<T> to{row + a + quad * stride, factor, offsets[half], stride};
    const bool is_paired = stride == 1 && rows.is_even();
    if (exists) {
      const auto stage = [&](auto paired) {
#pragma unroll
        for (int i = 0; i < kBulkPositions / 8; ++i) {
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
      // Phases without taps hold the bias, activated.
      if (a == classes - 1 && stride > classes) {
        const T nothing = static_cast<T>(blanks[half]);
#pragma unroll 1
        for (int r = classes; r < stride; ++r) {
#pragma unroll 8
          for (int i = 0; i < kBulkPositions / 8; ++i) {
            row[(8 * i + quad) * stride + r] = nothing;
            row[(8 * i + quad + 1) * stride + r] = nothing;
          }
        }
      }
    }
  }
}

/// The warp's columns that have a suspect sum in a tile with this suspect count, as bits for SuspectTiles::add().
template <class Operand, bool kStacked>
__device__ __forceinline__ std::uint32_t suspect_columns(const BulkTiling& tiling, SuspectCount suspect_count, float scale,
                                                         int warp, int lane, const float (&sums)[kBulkSums]) {
  if (suspect_count >= kNeverSplit) return SuspectTiles::kAnyColumn;
  const float least = least_right<Operand>(suspect_count) * scale;
  bool is_suspect_tile = false;
#pragma unroll
  for (int half = 0; half < (kStacked ? 1 : 2); ++half) {
    float smallest = least;
#pragma unroll
    for (int i = 0; i < kBulkPositions / 4; ++i) {
      const int at = i / 2 * 4 + 2 * half + i % 2;
      smallest = fminf(smallest, fabsf(kStacked ? fmaf(sums[at + 2], 1.0F / kLowScale, sums[at]) : sums[at]));
    }
    const int column = kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half;
    is_suspect_tile = is_suspect_tile || (smallest < least && column < tiling.columns);
  }
  const std::uint32_t lanes = __ballot_sync(0xffffffffU, is_suspect_tile);  // four lanes per column
  std::uint32_t columns = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) columns |= (lanes >> 4 * i & 0xfU) != 0 ? 1U << i : 0U;
  return columns;
}

/// The bias of each of a thread's columns.
template <bool kStacked, class T>
__device__ __forceinline__ void load_offsets(const TapGemm& gemm, const BulkTiling& tiling, const TilePlace& place,
                                             const T* __restrict__ bias, int warp, int lane, float (&offsets)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto column = static_cast<std::uint32_t>(place.column) +
                        static_cast<std::uint32_t>(kStacked ? warp * 8 + lane / 4 : warp * 16 + lane / 4 + 8 * half);
    if (column < gemm.columns)
      offsets[half] = static_cast<float>(bias[place.g * gemm.out_channels + tiling.by_classes.divide(column)]);
  }
}

/// Numbers of T through a light activation.
template <class T, int kCount>
__device__ __forceinline__ void activate_all(const LightActivation& activation, float (&numbers)[kCount]) {
#pragma unroll
  for (float& number : numbers) number = activation(static_cast<float>(static_cast<T>(number)));
}

/// Staged rows to the tensor, when all warps that `meet` have staged theirs.
template <class T, class Meet>
__device__ __forceinline__ void send_bulk_rows(const BulkTiling& tiling, const BulkRows<T>& rows, const T* staging,
                                               const Meet& meet, int warp, int lane) {
  if (tiling.stores_bulk) ptx::fence_async_shared();
  meet();
  store_bulk_rows<T>(tiling, rows, staging, warp, lane);
  if (tiling.stores_bulk) ptx::bulk_commit();
}

template <class Operand, int kDepths, bool kStacked, BulkStore kStore>
__device__ __forceinline__ void consume_bulk(const TapGemm& gemm, const BulkTiling& tiling, const BulkLayout& layout,
                                             const unsigned char* __restrict__ packed,
                                             const typename Operand::Source* __restrict__ bias, const Epilogue& epilogue,
                                             typename Operand::Source* __restrict__ out, const OperandHeader* header,
                                             const ExactSource<>& exact, const BulkTiles& tiles, const DynamicOrder& order,
                                             unsigned char* memory, typename Operand::Source* staging, int consumer, int warp,
                                             int lane) {
  using T = typename Operand::Source;
  constexpr bool kSpread = kStore == BulkStore::spread, kAux = kStore == BulkStore::aux;
  const auto* weight_header = reinterpret_cast<const WeightHeader*>(packed);
  Walk walk(tiling, consumer);
  BulkWeights<Operand, kDepths, kStacked> weights;
  weights.load(tiling, packed + kWeightHeaderBytes + static_cast<std::int64_t>(walk.tile) * tiling.weight_bytes, warp, lane);
  float offsets[2] = {};
  if (bias != nullptr) load_offsets<kStacked>(gemm, tiling, walk.place(tiling), bias, warp, lane, offsets);
  const LightActivation activation(epilogue);
  const bool is_active = !kSpread && activation.is_there;
  float blanks[2] = {offsets[0], offsets[1]};
  if (is_active) activate_all<T>(activation, blanks);
  if constexpr (Operand::kScaled) wait_for_grid_before();
  const SampleLook<Operand::kScaled> look(header);
  if (look.is_mixed()) return;
  const int exponent = Operand::kScaled ? -look.exponent() - scale_exponent(weight_header->largest, kWeightTarget) : 0;
  // Exponents outside the range of float are applied in two steps.
  const float first_factor = power_of_two(exponent < -126 || exponent > 127 ? exponent / 2 : 0);
  const float factor = power_of_two(exponent < -126 || exponent > 127 ? exponent - exponent / 2 : exponent);
  const SuspectCount of_weights =
      Operand::kScaled ? weight_suspect_count(static_cast<Split>(weight_header->split), gemm.rows * gemm.planes * gemm.taps)
                       : 0;
  if constexpr (kSpread) staging += warp * kSpreadRows * tiling.out_pitch;
  const auto meet = [&] {
    if (tiling.is_by_warps)
      __syncwarp();
    else
      ptx::named_barrier(1 + consumer, 128);
  };
  SuspectTiles suspect_tiles{
      reinterpret_cast<SuspectTiles::Entry*>(memory + (layout.suspect_tiles(4 * consumer + warp) - layout.base))};
  Ring ring;
  if (consumer == 1) ring.advance(tiling.stages);

  for (; tiling.is_dynamic || walk.more(); walk.advance()) {
    float sums[kBulkSums];
    ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
    if (tiling.is_dynamic) {
      walk.above = tiles.read(tiles.of_stage(ring.stage), lane);
      if (!walk.more()) break;
    }
    if constexpr (kAux) {
      ptx::bulk_wait_read();
      meet();
      const std::int64_t distance = epilogue.residual + epilogue.derivative;  // one of them is zero
      const auto rows_of = [&](const Walk& of) { return BulkRows<T>(gemm, tiling, of.place(tiling), out); };
      load_aux_rows<T>(tiling, rows_of(walk), distance, staging, warp, lane);
      Walk next = walk;
      next.advance();
      if (!tiling.is_dynamic && next.more()) prefetch_aux_rows<T>(tiling, rows_of(next), distance, warp, lane);
    }
    multiply_bulk(tiling, layout.sources + static_cast<std::uint32_t>(ring.stage * tiling.source_bytes), layout.zeros, weights,
                  sums);
    SuspectCount suspect_count = 0;
    if constexpr (Operand::kScaled)
      suspect_count = suspect_count_of_tile(memory + layout.suspect_count(ring.stage) - layout.base, of_weights, lane);
    const BulkRows<T> rows(gemm, tiling, walk.place(tiling), out);
    ptx::wgmma_wait<0>();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(ring.stage));
    ring.advance(tiling.stages);
    ring.advance(tiling.stages);
    // Waiting for free staging may take long; the source is already released.
    if constexpr (kStore == BulkStore::rows) ptx::bulk_wait_read();
    if constexpr (kAux) ptx::copy_wait<0>();
    if constexpr (!kSpread) meet();
    ptx::fence_registers(sums);
    if (Operand::kScaled && first_factor != 1.0F) {
#pragma unroll
      for (float& sum : sums) sum *= first_factor;
    }
    // Suspect tiles are stored without the epilogue, so that recompute can check the sums, and are finished afterwards.
    bool activates = kAux || is_active;
    if constexpr (Operand::kScaled) {
      activates = activates && suspect_tiles.count < SuspectTiles::kMost;
      if (suspect_count != 0) {
        const std::uint32_t columns = suspect_columns<Operand, kStacked>(tiling, suspect_count, first_factor, warp, lane, sums);
        if (columns != 0 && tiling.is_dynamic)
          order.add(tiling, walk, warp, suspect_count, columns, suspect_tiles);
        else if (columns != 0)
          suspect_tiles.add(walk.above, suspect_count, columns);
        activates = activates && columns == 0;
      }
    }
    if constexpr (kSpread) {
      stage_and_store_spread<T>(tiling, rows, factor, offsets, staging, warp, lane, sums);
    } else {
      float own_factor = factor, own_offsets[2] = {offsets[0], offsets[1]};
      if (!kAux && activates) activate_bulk<T, kStacked>(activation, own_factor, own_offsets, sums);
      if (kAux && activates)
        with_finish<T, FinishPart::all>(epilogue, [&](const auto& finish) {
          stage_bulk_aux<T, kStacked>(tiling, rows, factor, offsets, finish, staging, warp, lane, sums);
        });
      else
        stage_bulk<T, kStacked>(gemm, tiling, rows, own_factor, own_offsets, blanks, staging, warp, lane, sums);
      send_bulk_rows<T>(tiling, rows, staging, meet, warp, lane);
    }
  }
  ptx::bulk_wait();
  if constexpr (Operand::kScaled) {
    meet();                                      // a warp may have stored another's sums
    constexpr int kColumns = kStacked ? 8 : 16;  // per warp
    if (tiling.is_dynamic && suspect_tiles.count != 0) walk.above = suspect_tiles.of[0].above;
    while (suspect_tiles.count != 0) {
      const std::uint32_t before = tiling.is_dynamic ? order.recall(tiling, walk, warp, suspect_tiles) : kNoTile;
      recompute_tiles<Operand>(gemm, tiling, exact, bias, out, walk, suspect_tiles, exponent, warp * kColumns, kColumns,
                               kBulkPositions);
      if (kAux || is_active)
        finish_tiles<kAux>(gemm, tiling, epilogue, out, walk, suspect_tiles, warp * kColumns, kColumns, kBulkPositions);
      if (before == kNoTile) break;
      walk.above = before;
    }
  }
}

template <class Operand, int kDepths, bool kStacked, BulkStore kStore>
__global__ void __launch_bounds__(kBulkThreads, 1)
    source_bulk_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ BulkTiling tiling,
                       const typename Operand::Source* __restrict__ source, const unsigned char* __restrict__ packed,
                       const typename Operand::Source* __restrict__ bias, const __grid_constant__ Epilogue epilogue,
                       typename Operand::Source* __restrict__ out, const OperandHeader* header,
                       const __grid_constant__ ExactSource<> exact, const DynamicOrder order) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Operand::Source;
  extern __shared__ __align__(16) unsigned char source_bulk_memory[];
  const std::uint32_t base = (ptx::shared_address(source_bulk_memory) + 127) & ~127U;
  unsigned char* memory = source_bulk_memory + (base - ptx::shared_address(source_bulk_memory));
  const int group = group_of_block(), warp = warp_of_group(), lane = lane_of_warp();
  const BulkLayout layout(base, tiling);
  const BulkTiles tiles{reinterpret_cast<volatile std::uint32_t*>(memory + (layout.tiles() - base))};
  if (threadIdx.x < 32) reinterpret_cast<std::uint32_t*>(memory + (layout.zeros - base))[lane] = 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), kConverters);
      ptx::mbarrier_init(layout.empty(stage), 4);
    }
    for (int stage = 0; stage < tiling.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 4);
      ptx::mbarrier_init(layout.raw_empty(stage), kConverters);
    }
    ptx::fence_mbarrier_init();
  }
  ptx::fence_async_shared();
  __syncthreads();
  if (group == 2) {
    ptx::registers_down<80>();
    if (Operand::kScaled || tiling.is_dynamic) wait_for_grid_before();
    convert_bulk<Operand>(gemm, tiling, layout, memory + (layout.sources - base), memory + (layout.raw - base), source, header,
                          reinterpret_cast<std::uint32_t*>(memory + (layout.suspect_count(0) - base)), tiles, warp * 32 + lane);
    return;
  }
  if (group == 3) {
    ptx::registers_down<32>();
    copy_bulk<T>(gemm, tiling, layout, source, tiles, order, MixedExit(Operand::kScaled ? header : nullptr), warp, lane);
    return;
  }
  ptx::registers_up<200>();
  consume_bulk<Operand, kDepths, kStacked, kStore>(
      gemm, tiling, layout, packed, bias, epilogue, out, header, exact, tiles, order, memory,
      reinterpret_cast<T*>(memory + (layout.staging - base) + group * tiling.staging_bytes), group, warp, lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
