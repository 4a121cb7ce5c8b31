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

inline constexpr int kPreparedBarrier = 4;  // the other warps wait there once for the consumers

/// What a ticket says.
struct Ticket {
  std::uint32_t unit, index, column_tile;  // index: of the unit in the list
  UnitScale scale;
  __device__ __forceinline__ explicit Ticket(const uint4& words)
      : unit(words.x - 1), index(words.y), column_tile(words.z), scale(words.w) {}
  [[nodiscard]] __device__ __forceinline__ static uint4 packed(std::uint32_t unit, std::uint32_t index,
                                                               std::uint32_t column_tile, const UnitScale& scale) {
    return {unit + 1, index, column_tile, scale.packed()};
  }
  [[nodiscard]] __device__ __forceinline__ static uint4 end() { return {0, 0, 0, 0}; }
  [[nodiscard]] __device__ __forceinline__ static bool is_end(const uint4& words) { return words.x == 0; }
};

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
  /// Reads the ticket and gives its place back. What is read decides on the arrival, so the read is finished before it.
  [[nodiscard]] __device__ __forceinline__ uint4 take() {
    const uint4 ticket = read();
    if ((ticket.y & ticket.w) != 0xffffffffU) ptx::mbarrier_arrive(empty());
    ring.advance(ByTileShared::kSlots);
    return ticket;
  }
};

/// One thread takes tiles, tells the consumers, and copies the operands.
template <int kParts, bool kAlongPositions>
__device__ __forceinline__ void produce_by_tile(const ByTileCall& call, const PreconvertedLayout& layout) {
  const ByTileTiling& tiling = call.tiling;
  const PreconvertedTiling& steps = tiling.steps;
  const std::uint32_t count = __ldcg(&call.arrays.words->units);
  const bool needs_tf32 = __ldcg(&call.arrays.words->needs_tf32) != 0;
  TicketRing tickets{call.shared};
  Ring ring;
#pragma unroll 1
  for (;;) {
    tickets.wait_for_place();
    const std::uint32_t taken = atomicAdd(&call.arrays.words->tile, 1U), index = steps.by_column_tiles.divide(taken);
    const std::uint32_t column_tile = taken - index * steps.by_column_tiles.divisor;
    if (index >= count) break;
    const std::uint32_t in_all = __ldcg(call.arrays.unit_list + index);
    const ByTileUnit unit(tiling, call.gemm, in_all);
    const std::int64_t blocks = tiling.unit_positions / kWidePositions, subtiles = steps.tile_columns / kPreconvertedSubtile;
    bool wanted = call.all;
    for (int half = 0; half < kPreconvertedGroups && !wanted; ++half)
      wanted = call.is_wanted(unit.n, unit.g, column_tile * subtiles + (kAlongPositions ? 0 : half),
                              unit.in_sample * blocks + (kAlongPositions ? half : 0));
    if (!wanted) {
      ptx::add_release(call.arrays.multiplied + index, 1);
      continue;
    }
    const auto parts = static_cast<std::uint32_t>(tiling.parts);
    while (ptx::load_acquire(call.arrays.ready + index) != parts) __nanosleep(50);
    ptx::fence_async_global();
    const UnitScale scale(call.arrays.extents + in_all, needs_tf32);
    tickets.put(Ticket::packed(in_all, index, column_tile, scale));
    const int form_count = tiling.counts[scale.form];
    const std::int64_t tile = unit.g * steps.column_tiles + column_tile;
    copy_tile<kAlongPositions>(steps, layout, place_of_unit(call, index), tiling.half_bytes[scale.form],
                               call.arrays.weights[scale.form] + tile * form_count * std::int64_t{steps.weight_bytes}, Cursor{},
                               form_count, ring);
  }
  tickets.put(Ticket::end());
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
  const OwnColumns own_columns{call, epilogue, bias, own_column + thread / 32 * 16 + thread % 32 / 4};
  TicketRing tickets{call.shared};
  const auto place_of = [&](const Ticket& ticket) {
    const ByTileUnit unit(tiling, gemm, ticket.unit);
    const std::int64_t subtile =
        std::int64_t{ticket.column_tile} * (kAlongPositions ? 1 : kPreconvertedGroups) + (kAlongPositions ? 0 : group);
    return PreconvertedPlace{unit.g, subtile * steps.usable, unit.position(tiling, group)};
  };
  Ring ring;
#pragma unroll 1
  for (;;) {
    tickets.wait();
    if (__all_sync(0xffffffffU, Ticket::is_end(tickets.read()))) break;
    {
      const Ticket ticket(tickets.read());
      own_columns.bring(ByTileUnit(tiling, gemm, ticket.unit).g, ticket.column_tile, place_of(ticket).column);
    }
    float sums[kByTileSums] = {};
    const auto between = [&](int step) {
      if (step == 0 && epilogue.has_aux() && is_for_store(epilogue, gemm)) store.bring(place_of(Ticket(tickets.read())), 0);
    };
    // A vote, so that ptxas sees that warps do not diverge at the products.
    if (__all_sync(0xffffffffU, Ticket(tickets.read()).scale.form == kFormF16))
      multiply_by_tile<kFormF16, kParts, kTileColumns>(call, layout, own_column, own_source, ring, sums, between);
    else
      multiply_by_tile<kFormTf32, kParts, kTileColumns>(call, layout, own_column, own_source, ring, sums, between);
    const Ticket ticket(tickets.take());
    const UnitScale& scale = ticket.scale;
    const ByTileUnit unit(tiling, gemm, ticket.unit);
    // The bulk copies that read the unit are complete, so it may be overwritten, and no write has to be seen before.
    if (threadIdx.x == 0) atomicAdd(call.arrays.multiplied + ticket.index, 1U);
    const std::int64_t block =
        (unit.in_sample * tiling.unit_positions + (kAlongPositions ? group * kWidePositions : 0)) / kWidePositions;
    const PreconvertedPlace rows = place_of(ticket);
    if (!call.is_wanted(unit.n, unit.g, rows.column / steps.usable, block)) {
      store.wait_for_brought();  // its aux operand: the staging is used again
      continue;
    }
    const int power = scale.exponent - source_target(scale.form) - weight_target(scale.form);
    own_columns.scale(sums, power);
    const SubtilePlace place{unit.n, unit.g, rows.column, block * kWidePositions};
    // Only tf32 has the exponents for an Inf or NaN.
    const Suspects<2> unusual = scale.form == kFormTf32 ? unusual_of(sums) : Suspects<2>{};
    if (is_for_store(epilogue, gemm))
      store_tile(store, rows, place, sums);
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
  const std::uint32_t any = ptx::load_relaxed(&exact.wide.words->any);  // on its way together with the sample
  const bool all = is_mixed(source);
  if (!all && any == 0) return;
  const bool has_units = all || exact.wide.words->marked != 0;
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  constexpr int kStaging = kByTileStaging / kPreconvertedGroups;
  const PreconvertedLayout layout(base, tiling.steps, kStaging);
  // Two parts need three times the sums. Together the registers are those that the block begins with.
  constexpr int kConsumerRegisters = kParts == 2 ? 224 : 192, kConverterRegisters = 3 * 168 - 2 * kConsumerRegisters;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < ByTileShared::kSlots; ++slot) {
      ptx::mbarrier_init(ptx::shared_address(&shared.full[slot]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.empty[slot]), kByTileConsumers);
    }
    layout.begin_barriers(tiling.steps);
  }
  __syncthreads();
  const ByTileCall call{gemm, tiling, exact, arrays, shared, all};
  if (threadIdx.x >= kPreconvertedConsumers) {
    ptx::registers_down<kConverterRegisters>();
    if (!has_units) return;
    ptx::named_barrier(kPreparedBarrier, kPreconvertedThreads);
    if (threadIdx.x == kPreconvertedConsumers) produce_by_tile<kParts, kAlongPositions>(call, layout);
    if (threadIdx.x >= kPreconvertedConsumers + 32) convert_by_tile<kParts>(call);
    return;
  }
  ptx::registers_up<kConsumerRegisters>();
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0);
  store_list({gemm, exact, epilogue, bias, out}, call);
  if (!has_units) return;
  prepare_by_tile<kParts>(call);
  ptx::named_arrive(kPreparedBarrier, kPreconvertedThreads);
  consume_by_tile<kParts, kAlongPositions>(call, layout, epilogue, bias, out,
                                           raw + (layout.staging - ptx::shared_address(raw)) + group * kStaging, group);
#endif
}

}  // namespace polyphase::cuda::tensor_core
