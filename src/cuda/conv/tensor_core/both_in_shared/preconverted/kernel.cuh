#pragma once
// Forward and dgrad on wgmma (sm_90a) where many tiles of columns read the same source; the mathematics are in
// cuda/conv/tap_gemm.hpp.
//
// gemm_m = columns (channel, class), gemm_n = positions of all samples one behind the other, gemm_k = (row, plane, tap). Both
// operands lie ready in global memory (operand/convert_tensor.cuh, pack_weights.cuh), so a block's producer is one warp
// that issues bulk copies. Two warpgroups multiply from shared memory, and give a stage back when the products of the next are
// already issued: the tensor cores never wait for them.

#include <cstdint>

#include "cuda/conv/cursor.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/recompute.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/store.cuh"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kWideConsumers = kWideGroups * 128;
/// The producer is a whole warpgroup, whose registers move to the consumers, though one thread of it works.
inline constexpr int kWideThreads = kWideConsumers + 128;

/// Where a block works.
struct WideTile {
  std::int64_t g, column_tile, position;  // tile of positions
  int first_row_step, count;              // of its slice
};

__device__ __forceinline__ WideTile wide_tile(std::int64_t block, const WideSteps& steps) {
  const std::uint32_t slice = steps.slices == 1 ? 0 : steps.by_tiles.divide(static_cast<std::uint32_t>(block));
  const std::uint32_t index = static_cast<std::uint32_t>(block) - slice * static_cast<std::uint32_t>(steps.tiles);
  std::uint32_t column, position, g;
  if (steps.positions_first) {
    const std::uint32_t above = steps.by_position_tiles.divide(index);
    position = index - above * steps.by_position_tiles.divisor;
    g = steps.by_column_tiles.divide(above);
    column = above - g * steps.by_column_tiles.divisor;
  } else {
    const std::uint32_t above = steps.by_column_tiles.divide(index);
    column = index - above * steps.by_column_tiles.divisor;
    g = steps.by_position_tiles.divide(above);
    position = above - g * steps.by_position_tiles.divisor;
  }
  const int first = static_cast<int>(slice) * steps.row_steps_of_slice;
  const int row_steps = min(steps.row_steps_of_slice, steps.row_steps - first);
  return {g, column, position, first, row_steps * steps.plane_steps * steps.tap_steps};
}

/// Shared memory: stages of source and weights, staging, barriers.
struct WideLayout {
  std::uint32_t stages, staging, barriers, stage_bytes;
  __device__ WideLayout(std::uint32_t base, const WideSteps& steps, int staging_of_group) {
    stages = base;
    stage_bytes = static_cast<std::uint32_t>(steps.source_bytes + steps.weight_bytes);
    staging = stages + static_cast<std::uint32_t>(steps.stages) * stage_bytes;
    barriers = staging + static_cast<std::uint32_t>(kWideGroups * staging_of_group);
  }
  __device__ std::uint32_t stage(int index) const { return stages + static_cast<std::uint32_t>(index) * stage_bytes; }
  __device__ std::uint32_t full(int index) const { return barriers + static_cast<std::uint32_t>(index) * 16; }
  __device__ std::uint32_t empty(int index) const { return barriers + static_cast<std::uint32_t>(index) * 16 + 8; }
};

/// One thread issues a step's copies: source and weights are a run of bytes each.
template <bool kAlongPositions>
__device__ __forceinline__ void wide_produce(const WideSteps& steps, const WideLayout& layout,
                                             const unsigned char* __restrict__ source,
                                             const unsigned char* __restrict__ packed) {
  const SourceForm& form = steps.source;
  const auto plane_bytes = static_cast<std::uint32_t>(form.parts * kWideBlocks * form.tile_places * 16);
  const auto weight_bytes = static_cast<std::uint32_t>(steps.weight_bytes);
  const std::int64_t row_step_bytes = form.planes * plane_bytes, tile_bytes = form.row_steps * row_step_bytes;
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < steps.blocks; block += gridDim.x) {
    const WideTile tile = wide_tile(block, steps);
    const std::int64_t first_step = (tile.g * steps.column_tiles + tile.column_tile) * steps.count +
                                    static_cast<std::int64_t>(tile.first_row_step) * steps.plane_steps * steps.tap_steps;
    const unsigned char* weights = packed + first_step * steps.weight_bytes;
    const unsigned char* of_tile =
        source + (tile.g * form.tiles + tile.position * (kAlongPositions ? kWideGroups : 1)) * tile_bytes;
    Cursor cursor;
    cursor.row = tile.first_row_step;
    for (int step = 0; step < tile.count; ++step, cursor.advance(steps), weights += weight_bytes) {
      const int plane = cursor.plane * steps.planes;
      const std::uint32_t bytes =
          static_cast<std::uint32_t>(min(steps.planes, static_cast<int>(form.planes) - plane)) * plane_bytes;
      const unsigned char* from = of_tile + cursor.row * row_step_bytes + plane * static_cast<std::int64_t>(plane_bytes);
      const std::uint32_t full = layout.full(ring.stage), to = layout.stage(ring.stage);
      ptx::mbarrier_wait(layout.empty(ring.stage), ring.parity ^ 1);
      ptx::mbarrier_arrive_expect(full, (kAlongPositions ? 2 : 1) * bytes + weight_bytes);
      ptx::bulk_copy(to, from, bytes, full);
      if constexpr (kAlongPositions)
        ptx::bulk_copy(to + static_cast<std::uint32_t>(steps.source_bytes / 2), from + tile_bytes, bytes, full);
      ptx::bulk_copy(to + static_cast<std::uint32_t>(steps.source_bytes), weights, weight_bytes, full);
      ring.advance(steps.stages);
    }
  }
}

/// The products of up to two (plane, tap) of a step, issued in one go; start addresses and steps in units of 16 bytes.
template <class Operand, int kN>
struct WideUnits {
  using Mma = ptx::Wgmma<Operand::kType, kN>;
  std::uint64_t a0, b0, a1, b1;
  std::uint32_t a_depth, b_depth, a_part, b_part;

  /// sums += high*high, or = where operands are split; cross += high*low + low*high, a group of its own.
  template <int kUnits, int kCross>
  __device__ __forceinline__ void multiply(float (&sums)[kN / 2], float (&cross)[kCross]) const {
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kUnits * kWideDepths; ++i) {
      const std::uint64_t a = (i < kWideDepths ? a0 : a1) + i % kWideDepths * a_depth;
      const std::uint64_t b = (i < kWideDepths ? b0 : b1) + i % kWideDepths * b_depth;
      Mma::multiply(sums, a, b, !Operand::kSplit || i > 0);
    }
    ptx::wgmma_commit();
    if constexpr (Operand::kSplit) {
#pragma unroll
      for (int i = 0; i < kUnits * kWideDepths; ++i) {
        const std::uint64_t a = (i < kWideDepths ? a0 : a1) + i % kWideDepths * a_depth;
        const std::uint64_t b = (i < kWideDepths ? b0 : b1) + i % kWideDepths * b_depth;
        Mma::multiply(cross, a + a_part, b, true);
        Mma::multiply(cross, a, b + b_part, true);
      }
      ptx::wgmma_commit();
    }
  }
};

/// log2 of what a sum has to be multiplied by; for whole warps.
template <class Operand>
__device__ __forceinline__ int wide_exponent(const OperandHeader* source, const OperandHeader* weights) {
  if constexpr (!Operand::kScaled) return 0;
  return -source_exponent(source) - scale_exponent(weights->largest, kWeightTarget);
}

template <int kN, bool kAlongPositions>
__device__ __forceinline__ WidePlace wide_place(const WideTile& tile, const WideSteps& steps, int group) {
  const std::int64_t subtile = kAlongPositions ? tile.column_tile : tile.column_tile * kWideGroups + group;
  return {tile.g, subtile * steps.usable, tile.position * steps.tile_positions + (kAlongPositions ? group * kN : 0)};
}

/// Writes a warpgroup's sums, and those that its operands may have got wrong once more.
template <class Operand, class Store, int kSums>
__device__ __forceinline__ void store_and_repair(const TapGemm& form, const WideSteps& steps, const Epilogue& epilogue,
                                                 const WideExact<typename Operand::Source>& exact,
                                                 const typename Operand::Source* __restrict__ bias,
                                                 typename Operand::Source* __restrict__ out, const Store& store,
                                                 const WideFaults<typename Operand::Source>& faults, bool suspicious,
                                                 const WidePlace& place, float (&sums)[kSums]) {
  Suspects<kSums / 32> suspects;
  if (suspicious) faults.find(place, sums, suspects);
  store.store(place, sums);
  if (!suspicious) return;
  ptx::bulk_wait();
  ptx::named_barrier(store.barrier, 128);  // of what is written twice, the second stays
  compute_again<Store>(form, steps, epilogue, exact, bias, out, place, suspects);
}

template <class Operand, int kN, bool kAlongPositions>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ WideSteps steps,
                const __grid_constant__ Epilogue epilogue, const unsigned char* __restrict__ source,
                const unsigned char* __restrict__ packed, const typename Operand::Source* __restrict__ bias,
                typename Operand::Source* __restrict__ out, float4* __restrict__ partial,
                const OperandHeader* __restrict__ source_header, const OperandHeader* __restrict__ weight_header,
                const __grid_constant__ WideExact<typename Operand::Source> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  unsigned char* memory = raw + (base - ptx::shared_address(raw));
  constexpr int kStaging = 4 * wide_staging_of_warp(kWideStagedBytes);  // of a warpgroup
  const WideLayout layout(base, steps, kStaging);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < steps.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 1);
      ptx::mbarrier_init(layout.empty(stage), kWideGroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  wait_for_grid_before();
  if (threadIdx.x >= kWideConsumers) {
    ptx::registers_down<40>();
    if (threadIdx.x == kWideConsumers) wide_produce<kAlongPositions>(steps, layout, source, packed);
    return;
  }
  ptx::registers_up<232>();
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0), lane = static_cast<int>(threadIdx.x) % 32;
  const int own_column = kAlongPositions ? 0 : group * kWideSubtile;
  const int own_source = kAlongPositions ? group * (steps.source_bytes / kWideGroups) : 0;
  const WideStore<typename Operand::Source, kN, kWideStagedBytes> store{
      form,
      steps,
      WideFinish(wide_exponent<Operand>(source_header, weight_header), epilogue),
      bias,
      out,
      memory + (layout.staging - base) + group * kStaging,
      static_cast<int>(threadIdx.x) % 128,
      1 + group};
  const WideFaults<typename Operand::Source> faults{form, steps, exact, weight_header->faults};
  constexpr int kTileColumns = kAlongPositions ? kWideSubtile : kWideSubtile * kWideGroups;
  // In units of 16 bytes, like all steps of addresses here.
  const auto places = static_cast<std::uint32_t>(steps.source.tile_places);
  const int all_taps = steps.source.taps_apart ? 1 : static_cast<int>(form.taps);
  const auto tap_step = static_cast<std::uint32_t>(form.tap_step);
  constexpr std::uint32_t kPart = kWideBlocks * kTileColumns;
  const std::uint32_t b_part = kWideBlocks * places, b_plane = Operand::kParts * b_part;
  Ring ring;
  for (std::int64_t block = blockIdx.x; block < steps.blocks; block += gridDim.x) {
    const WideTile tile = wide_tile(block, steps);
    // Asked for here, needed when the products are done.
    const std::uint32_t any_fault = faults.look(wide_place<kN, kAlongPositions>(tile, steps, group), kN);
    float sums[kN / 2] = {};
    float cross[Operand::kSplit ? kN / 2 : 1] = {}, total[Operand::kSplit ? kN / 2 : 1] = {};
    Cursor cursor;
    int last = 0;
    for (int step = 0; step < tile.count; ++step, cursor.advance(steps)) {
      const std::uint32_t stage = layout.stage(ring.stage);
      const int first_tap = cursor.tap * steps.taps, taps = min(steps.taps, all_taps - first_tap);
      const int planes = min(steps.planes, static_cast<int>(steps.source.planes) - cursor.plane * steps.planes);
      std::uint64_t a =
          ptx::operand_descriptor(stage + static_cast<std::uint32_t>(steps.source_bytes + own_column * 16), kTileColumns * 16);
      std::uint64_t b_of_tap = ptx::operand_descriptor(stage + static_cast<std::uint32_t>(own_source), places * 16) +
                               static_cast<std::uint32_t>(first_tap) * tap_step;
      std::uint64_t b = b_of_tap;
      ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
      int plane = 0;
      const auto next = [&] {
        a += Operand::kParts * kPart;
        b += b_plane;
        if (++plane < planes) return;
        plane = 0;
        a += static_cast<std::uint32_t>(steps.planes - planes) * Operand::kParts * kPart;
        b_of_tap += tap_step;
        b = b_of_tap;
      };
#pragma unroll 1
      for (int left = taps * planes, all = left; left > 0; left -= 2) {
        const std::uint64_t a0 = a, b0 = b;
        next();
        const WideUnits<Operand, kN> units{a0, b0, a, b, 2 * kTileColumns, 2 * places, kPart, b_part};
        if constexpr (Operand::kSplit) ptx::settle(sums);
        if (left > 1) {
          units.template multiply<2>(sums, cross);
          next();
        } else {
          units.template multiply<1>(sums, cross);
        }
        ptx::wgmma_wait<1>();  // all but the products issued last
        if (left == all && step != 0 && lane == 0) ptx::mbarrier_arrive(layout.empty(last));
        if constexpr (Operand::kSplit) {
          // The tensor cores cut sums off instead of rounding them: a few are added up in ordinary arithmetic, while the mixed
          // products run.
          ptx::settle(sums);
#pragma unroll
          for (int i = 0; i < kN / 2; ++i) total[i] += sums[i];
        }
      }
      // What lies beside the outputs comes while products run, when what was stored before has left its place.
      if constexpr (decltype(store)::kFinishesLate) {
        if (epilogue.is_late() && step == tile.count / 2) {
          const int same = __shfl_sync(0xffffffffU, static_cast<int>(block), 0);
          store.bring(wide_place<kN, kAlongPositions>(wide_tile(same, steps), steps, group), 0);
        }
      }
      last = ring.stage;
      ring.advance(steps.stages);
    }
    // Where the tile goes is found while the last products run, and again, since in registers it would be in the way of them.
    const int same = __shfl_sync(0xffffffffU, static_cast<int>(block), 0);
    const WidePlace place = wide_place<kN, kAlongPositions>(wide_tile(same, steps), steps, group);
    const bool suspicious = __any_sync(0xffffffffU, any_fault != 0) != 0;
    ptx::wgmma_wait<0>();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(last));
    ptx::settle(sums);
    if constexpr (Operand::kSplit) {
      ptx::settle(cross);
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) sums[i] = total[i] + cross[i] * (1.0F / kLowScale);
    }
    if (steps.slices > 1) {
      float4* to = partial + (block * kWideGroups + group) * (kN / 8) * 128 + threadIdx.x % 128;
#pragma unroll
      for (int i = 0; i < kN / 8; ++i)
        to[i * 128] = make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
    } else {
      store_and_repair<Operand>(form, steps, epilogue, exact, bias, out, store, faults, suspicious, place, sums);
    }
  }
  ptx::bulk_wait_read();
#endif
}

/// Adds up the slices of each tile, in their order, and stores it.
template <class Operand, int kN, bool kAlongPositions>
__global__ void __launch_bounds__(kWideConsumers)
    wide_reduce_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ WideSteps steps,
                       const __grid_constant__ Epilogue epilogue, const typename Operand::Source* __restrict__ bias,
                       typename Operand::Source* __restrict__ out, const float4* __restrict__ partial,
                       const OperandHeader* __restrict__ source_header, const OperandHeader* __restrict__ weight_header,
                       const __grid_constant__ WideExact<typename Operand::Source> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  wait_for_grid_before();
  __shared__ __align__(16) unsigned char staging[kWideGroups][4 * wide_staging_of_warp(kWideStagedBytes / 2)];
  const int group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  const WideStore<typename Operand::Source, kN, kWideStagedBytes / 2> store{
      form,   steps,    WideFinish(wide_exponent<Operand>(source_header, weight_header), epilogue), bias, out, staging[group],
      thread, 1 + group};
  const std::int64_t tile = blockIdx.x;
  const WideFaults<typename Operand::Source> faults{form, steps, exact, weight_header->faults};
  const WidePlace place = wide_place<kN, kAlongPositions>(wide_tile(tile, steps), steps, group);
  const bool suspicious = __any_sync(0xffffffffU, faults.look(place, kN) != 0) != 0;
  float sums[kN / 2] = {};
#pragma unroll 1
  for (int slice = 0; slice < steps.slices; ++slice) {
    const float4* from = partial + ((slice * steps.tiles + tile) * kWideGroups + group) * (kN / 8) * 128 + thread;
#pragma unroll
    for (int i = 0; i < kN / 8; ++i) {
      const float4 more = from[i * 128];
      sums[4 * i] += more.x;
      sums[4 * i + 1] += more.y;
      sums[4 * i + 2] += more.z;
      sums[4 * i + 3] += more.w;
    }
  }
  store_and_repair<Operand>(form, steps, epilogue, exact, bias, out, store, faults, suspicious, place, sums);
  ptx::bulk_wait_read();
#endif
}

}  // namespace polyphase::cuda::tensor_core
