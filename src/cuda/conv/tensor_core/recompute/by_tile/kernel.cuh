#pragma once
// Forward and dgrad of f32 whose time does not depend on the data: each unit of positions is converted with its own scale, each
// column of weights has its own too, and numbers that are still too different become tf32. The pipeline of the products is the
// preconverted kernel's (preconverted/multiply.cuh). work.cuh says how the blocks share the work.

#include <cstdint>

#include "cuda/conv/tensor_core/pipeline/preconverted/multiply.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/arrays.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/operand.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/prepare.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/source.cuh"
#include "cuda/conv/tensor_core/recompute/by_tile/store.cuh"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/kernel/dependent_launch.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPreparedBarrier = 4;  // the producer's warp waits there once for the consumers
inline constexpr std::uint32_t kEnd = 0, kConvert = 1, kMultiply = 2;

/// Hands tickets from the producer to the consumers.
struct TicketRing {
  ByTileShared& shared;
  Ring ring;
  __device__ __forceinline__ std::uint32_t full() const { return ptx::shared_address(&shared.full[ring.stage]); }
  __device__ __forceinline__ std::uint32_t empty() const { return ptx::shared_address(&shared.empty[ring.stage]); }
  __device__ __forceinline__ void wait_for_place() const { ptx::mbarrier_wait(empty(), ring.parity ^ 1); }
  /// After wait_for_place().
  __device__ __forceinline__ void put(const uint4& ticket) {
    shared.tickets[ring.stage] = ticket;
    ptx::mbarrier_arrive(full());
    ring.advance(ByTileShared::kSlots);
  }
  /// The ticket stays where it is until take(): in registers it would compete with the sums.
  __device__ __forceinline__ void wait() const { ptx::mbarrier_wait(full(), ring.parity); }
  [[nodiscard]] __device__ __forceinline__ uint4 read() const { return shared.tickets[ring.stage]; }
  /// Reads the ticket and gives its place back. The vote needs the words, so the reads are finished before the arrival.
  [[nodiscard]] __device__ __forceinline__ uint4 take() {
    const uint4 ticket = read();
    const bool has_read = __all_sync(0xffffffffU, (ticket.y & ticket.z & ticket.w) != 0xffffffffU);
    __syncwarp();
    if (has_read && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty());
    ring.advance(ByTileShared::kSlots);
    return ticket;
  }
};

/// One thread takes tickets, tells the consumers what they are for, and copies the operands of products.
template <int kParts, bool kAlongPositions>
__device__ __forceinline__ void produce_by_tile(const ByTileCall& call, const PreconvertedLayout& layout) {
  const ByTileTiling& tiling = call.tiling;
  const PreconvertedTiling& steps = tiling.steps;
  const std::uint32_t count = __ldcg(&call.arrays.words->units);
  const std::int64_t chunks = (count + tiling.chunk - 1) / tiling.chunk;
  TicketRing tickets{call.shared};
  Ring ring;
#pragma unroll 1
  while (chunks > 0) {
    tickets.wait_for_place();
    const ByTileTicket ticket(tiling, atomicAdd(&call.arrays.words->ticket, 1U));
    if (!ticket.converts && ticket.chunk >= chunks) break;
    if (ticket.unit >= count) continue;
    const auto chunk = static_cast<std::uint32_t>(ticket.chunk);
    if (ticket.converts) {
      tickets.put({kConvert, ticket.unit, chunk, 0});
      continue;
    }
    const ByTileUnit unit(tiling, call.gemm, __ldcg(call.arrays.unit_list + ticket.unit));
    const std::int64_t blocks = tiling.unit_positions / kWidePositions, subtiles = steps.tile_columns / kPreconvertedSubtile;
    bool wanted = call.all;
    for (int half = 0; half < kPreconvertedGroups && !wanted; ++half)
      wanted = call.is_wanted(unit.n, unit.g, ticket.column_tile * subtiles + (kAlongPositions ? 0 : half),
                              unit.in_sample * blocks + (kAlongPositions ? half : 0));
    if (!wanted) {
      ptx::add_release(call.arrays.multiplied + chunk, 1);
      continue;
    }
    std::uint32_t ready;
    while ((ready = ptx::load_acquire(call.arrays.ready + ticket.unit)) == 0) __nanosleep(50);
    ptx::fence_async_global();
    const UnitScale scale(ready);
    tickets.put({kMultiply, ticket.unit, ticket.column_tile, ready});
    const int form_count = tiling.counts[scale.form];
    const std::int64_t tile = unit.g * steps.column_tiles + ticket.column_tile;
    copy_tile<kAlongPositions>(steps, layout, place_of_unit(call, ticket.unit), tiling.half_bytes[scale.form],
                               call.arrays.weights[scale.form] + tile * form_count * std::int64_t{steps.weight_bytes}, Cursor{},
                               form_count, ring);
  }
  tickets.put({kEnd, 0, 0, 0});
}

/// sums = a warpgroup's products of a tile; between(step) is called during them.
template <int kForm, int kParts, int kTileColumns, class Between>
__device__ __forceinline__ void multiply_by_tile(const ByTileCall& call, const PreconvertedLayout& layout, int own_column,
                                                 int own_source, Ring& ring, float (&sums)[kByTileSums],
                                                 const Between& between) {
  using Operand = OperandTraits<float, kForm == kFormF16 ? ptx::Tensor::f16 : ptx::Tensor::tf32, kParts>;
  float cross[Operand::kSplit ? kByTileSums : 1] = {}, total[Operand::kSplit ? kByTileSums : 1] = {};
  const int last = multiply_tile<Operand, kTileColumns>(call.gemm, call.tiling.steps, layout, own_column, own_source,
                                                        call.tiling.counts[kForm], ring, sums, cross, total, between);
  ptx::wgmma_wait<0>();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(layout.empty(last));
  ptx::fence_registers(sums);
  if constexpr (Operand::kSplit) join(total, cross, sums);
}

template <int kParts, bool kAlongPositions>
__device__ __forceinline__ void consume_by_tile(const ByTileCall& call, const PreconvertedLayout& layout,
                                                const Epilogue& epilogue, const float* bias, float* out, unsigned char* staging,
                                                int group) {
  const ByTileTiling& tiling = call.tiling;
  const PreconvertedTiling& steps = tiling.steps;
  const TapGemm& gemm = call.gemm;
  const WideOutputs outputs{gemm, call.exact, epilogue, bias, out};
  const int thread = static_cast<int>(threadIdx.x) % 128;
  constexpr int kTileColumns = kAlongPositions ? kPreconvertedSubtile : kPreconvertedSubtile * kPreconvertedGroups;
  const ByTileStore store{gemm, steps, ScaledFinish(0, epilogue), bias, out, staging, thread, 1 + group};
  const int own_column = kAlongPositions ? 0 : group * kPreconvertedSubtile;
  const int own_source = kAlongPositions ? group * (steps.source_bytes / kPreconvertedGroups) : 0;
  TicketRing tickets{call.shared};
  const auto place_of = [&](const uint4& ticket) {
    const ByTileUnit unit(tiling, gemm, __ldcg(call.arrays.unit_list + ticket.y));
    const std::int64_t subtile =
        std::int64_t{ticket.z} * (kAlongPositions ? 1 : kPreconvertedGroups) + (kAlongPositions ? 0 : group);
    return PreconvertedPlace{unit.g, subtile * steps.usable, unit.position(tiling, group)};
  };
  Ring ring;
#pragma unroll 1
  for (;;) {
    tickets.wait();
    const std::uint32_t kind = tickets.read().x;
    if (kind == kEnd) break;
    if (kind == kConvert) {
      const uint4 ticket = tickets.take();
      convert_unit<kParts>(call, ticket.y, ticket.z);
      continue;
    }
    float sums[kByTileSums] = {};
    const auto between = [&](int step) {
      if (step == 0 && epilogue.has_aux() && is_for_store(epilogue, gemm)) store.bring(place_of(tickets.read()), 0);
    };
    if (UnitScale(tickets.read().w).form == kFormF16)
      multiply_by_tile<kFormF16, kParts, kTileColumns>(call, layout, own_column, own_source, ring, sums, between);
    else
      multiply_by_tile<kFormTf32, kParts, kTileColumns>(call, layout, own_column, own_source, ring, sums, between);
    const uint4 ticket = tickets.take();
    const UnitScale scale(ticket.w);
    const ByTileUnit unit(tiling, gemm, __ldcg(call.arrays.unit_list + ticket.y));
    // All steps of the tile were in shared memory, so its unit may be overwritten.
    if (threadIdx.x == 0) ptx::add_release(call.arrays.multiplied + ticket.y / static_cast<std::uint32_t>(tiling.chunk), 1);
    const std::int64_t block =
        (unit.in_sample * tiling.unit_positions + (kAlongPositions ? group * kWidePositions : 0)) / kWidePositions;
    const PreconvertedPlace rows = place_of(ticket);
    if (!call.is_wanted(unit.n, unit.g, rows.column / steps.usable, block)) {
      store.wait_for_brought();  // its aux operand: the staging is used again
      continue;
    }
    const int* const exponents = call.arrays.exponents + (unit.g * steps.column_tiles + ticket.z) * steps.tile_columns +
                                 own_column + thread / 32 * 16 + thread % 32 / 4;
    const int power = scale.exponent - source_target(scale.form) - weight_target(scale.form);
    unscale(sums, PowerPair(power + __ldcg(exponents)), PowerPair(power + __ldcg(exponents + 8)));
    const SubtilePlace place{unit.n, unit.g, rows.column, block * kWidePositions};
    // Only tf32 has the exponents for an Inf or NaN.
    const Suspects<2> unusual = scale.form == kFormTf32 ? unusual_of(sums) : Suspects<2>{};
    if (is_for_store(epilogue, gemm))
      store.store(rows, sums);
    else
      store_each(outputs, steps.usable, place, reinterpret_cast<float*>(staging), 1 + group, sums);
    if (scale.form == kFormTf32 && ptx::named_barrier_or(1 + group, 128, (unusual.of_run[0] | unusual.of_run[1]) != 0)) {
      ptx::bulk_wait();
      ptx::named_barrier(1 + group, 128);  // an element written twice must keep the second value
      store_unusual(outputs, steps.usable, place, unusual);
    }
    if (thread == 0)
      count_recomputed(static_cast<unsigned>(min(std::int64_t{steps.usable}, gemm.columns - place.column) *
                                             min(std::int64_t{kWidePositions}, gemm.position_count - place.position)));
  }
  ptx::bulk_wait_read();
}

template <int kParts, bool kAlongPositions>
__global__ void __launch_bounds__(kPreconvertedThreads, 1)
    by_tile_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ ByTileTiling tiling,
                   const __grid_constant__ ExactSource<> exact, const __grid_constant__ Epilogue epilogue, const float* bias,
                   float* out, const OperandHeader* source, const __grid_constant__ ByTileArrays arrays) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ __align__(16) ByTileShared shared;
  wait_for_grid_before();
  const bool all = is_mixed(source);
  if (!all && exact.wide.words->any == 0) return;
  const bool has_units = all || exact.wide.words->marked != 0;
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  constexpr int kStaging = 4 * preconverted_staging_of_warp(kPreconvertedStagedBytes);  // per warpgroup
  const PreconvertedLayout layout(base, tiling.steps, kStaging);
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < ByTileShared::kSlots; ++slot) {
      ptx::mbarrier_init(ptx::shared_address(&shared.full[slot]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.empty[slot]), kByTileConsumers / 32);
    }
    layout.begin_barriers(tiling.steps);
  }
  __syncthreads();
  const ByTileCall call{gemm, tiling, exact, arrays, shared, all};
  if (threadIdx.x >= kPreconvertedConsumers) {
    ptx::registers_down<40>();
    if (threadIdx.x >= kPreconvertedConsumers + 32 || !has_units) return;
    ptx::named_barrier(kPreparedBarrier, kByTileConsumers + 32);
    if (threadIdx.x == kPreconvertedConsumers) produce_by_tile<kParts, kAlongPositions>(call, layout);
    return;
  }
  ptx::registers_up<232>();
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0);
  store_list({gemm, exact, epilogue, bias, out}, call);
  if (!has_units) return;
  prepare_by_tile<kParts>(call);
  ptx::named_arrive(kPreparedBarrier, kByTileConsumers + 32);
  consume_by_tile<kParts, kAlongPositions>(call, layout, epilogue, bias, out,
                                           raw + (layout.staging - ptx::shared_address(raw)) + group * kStaging, group);
#endif
}

}  // namespace polyphase::cuda::tensor_core
