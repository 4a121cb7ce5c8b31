#pragma once
// The kernel of the weight gradient by rows (rows.cuh).

#include <type_traits>

#include "cuda/conv/tensor_core/operand/convert_rows.cuh"
#include "cuda/conv/tensor_core/wgrad/rows_multiply.cuh"
#include "cuda/conv/tensor_core/wgrad/wide/sample.cuh"
#include "cuda/conv/tensor_core/wgrad/wide/sums.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/opaque.cuh"

namespace polyphase::cuda::tensor_core {

/// A consumer thread's rows; its warp's begin at block `own_block` of the tile.
template <class Operand>
__device__ __forceinline__ WgradRows<Operand> rows_of(const WgradTiling& tiling, const WgradClasses& classes,
                                                      const WgradPlace& place, int own_block, int lane, int position) {
  WgradRows<Operand> rows{
      .side = tiling.rows, .step = static_cast<int>(tiling.rows.step), .box_bytes = tiling.rows.raw.box_bytes};
  const std::int64_t begin = window_begin(tiling.rows, tiling, place.shift, 0);
  const auto row = [&](int block, int row_of_block) {
    return raw_row<typename Operand::Source>(tiling.rows, classes, begin, place.row_block, block, row_of_block);
  };
  for (int i = 0; i < 2; ++i) rows.row[i] = row(own_block + i, row_of_lane(lane / 4));
  rows.named = row(own_block + lane / 8 % 2, row_of_lane(lane % 8));
  rows.has_pairs = tiling.rows.step == 1 && tiling.rows.raw.boxes == 1;
  for (int c = 0; c < tiling.rows.raw.classes; ++c)
    rows.has_pairs = rows.has_pairs && numbers_before<typename Operand::Source>(classes, c, begin) % 2 == 0;
  rows.has_seconds =
      tiling.rows.step == 2 && tiling.rows.raw.span == 2 * kChunk && (tiling.rows.planes - 1) * tiling.rows.plane_step <= 1;
  rows.position = position + 2 * (lane % 4);
  return rows;
}

/// Adds the sums of two consumers in shared memory, (sums, threads of one). Returns whether this consumer has them now.
template <int kShifts, int kSums>
__device__ __forceinline__ bool add_turns(float* shared, int thread, bool keeps, float (&total)[kShifts][kSums]) {
  shared += thread;
  if (!keeps) {
#pragma unroll
    for (int i = 0; i < kShifts * kSums; ++i) shared[i * 128] = total[i / kSums][i % kSums];
  }
  ptx::named_barrier(1, 256);
  if (keeps) {
#pragma unroll
    for (int i = 0; i < kShifts * kSums; ++i) total[i / kSums][i % kSums] += shared[i * 128];
  }
  return keeps;
}

/// With split numbers a consumer begins its products when half or all of the other's are issued; otherwise both would convert
/// and multiply at the same time. The named barrier at which the first one waits; the second's is the next.
inline constexpr int kFirstTurn = 2;
inline constexpr int kConsumersDone = 1;
// The named barriers after which ends_early is there, for each role: the first consumer warp arrives at all of them.
inline constexpr int kCopierKnows = 4, kConvertersKnow = 5, kConsumersKnow = 6;

/// All steps of a consumer warpgroup.
template <class Operand, int kN, int kShifts, int kProducers>
__device__ __forceinline__ void consume_stride1(const ConvProblem& problem, const WgradTiling& tiling,
                                                const WgradClasses& classes, const WgradPlace& place,
                                                const WgradBuffers& buffers, int exponent, float rows_scale, WgradRange& range,
                                                float* __restrict__ partial) {
  const int group = __shfl_sync(0xffffffffU, (static_cast<int>(threadIdx.x) - kProducers) / 128, 0);
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const bool turns = tiling.own == 0;
  const int own_block = (turns ? 0 : group * 8) + 2 * warp;
  const int position = turns ? group * kChunk : 0;
  WgradRows<Operand> rows = rows_of<Operand>(tiling, classes, place, own_block, lane, position);
  // Fragments per step, fewer if registers are short.
  constexpr int kSums = kN * kShifts;
  constexpr int kAtOnce = kSums <= 256 - (Operand::kScaled ? 1 : 0) ? kChunk / 16 : kSums > 256 && Operand::kScaled ? 1 : 2;
  constexpr bool kDense = kSums > 192;
  WgradOperands at{};
  constexpr bool kTogether = wgrad_multiplies_together({kN, kShifts}, Operand::kParts);
  const int part = tiling.stage_bytes / Operand::kParts;
  at.columns_part = (kTogether ? -part : part) / 16;
  at.shift_step = tiling.shift_step;
  const std::uint64_t own_columns = ptx::transposed_descriptor(
      ptx::shared_address(buffers.tiles.stages) +
          static_cast<std::uint32_t>((kTogether ? part : 0) + (tiling.first_shift_offset + position) * 16),
      static_cast<std::uint32_t>(tiling.columns.pitch * 16));
  Ring raw, tile;
  auto chunk = static_cast<int>(place.first_chunk % tiling.chunks_per_row);
  auto left = static_cast<int>(place.last_chunk - place.first_chunk);
  const auto flushes = static_cast<int>(tiling.flushes);
  constexpr bool kOneAtATime = Operand::kParts >= 2 && kN <= 64;
  if constexpr (kOneAtATime) {
    if (group == 1 && left > 0) ptx::named_arrive(kFirstTurn, 256);
  }
  for (int flush = 0; flush < flushes; ++flush) {
    float total[kShifts][kN / 2] = {};
    const int last = max(0, left - static_cast<int>(tiling.chunks_per_flush));
    for (bool go_on = false; left > last; --left, go_on = true) {
      const auto hidden = static_cast<int>(-window_begin(tiling.rows, tiling, place.shift, chunk));
      ptx::mbarrier_wait(buffers.rows.full(raw.stage), raw.parity);
      rows.raw = buffers.rows.at(raw.stage);
      at.columns = own_columns + (static_cast<std::uint32_t>(tile.stage * tiling.stage_bytes) >> 4);
      const auto await_tile = [&] {
        ptx::mbarrier_wait(buffers.tiles.full(tile.stage), tile.parity);
        ptx::fence_async_shared();
      };
      const auto rows_read = [&] { ptx::mbarrier_arrive(buffers.rows.empty(raw.stage)); };
      const auto release = [&] { ptx::mbarrier_arrive(buffers.tiles.empty(tile.stage)); };
      // Else every address stays in a register.
      ptx::opaque(rows.step);
      ptx::opaque(rows.position);
      ptx::opaque(rows.box_bytes);
      std::uint32_t parts[kAtOnce][Operand::kParts][4];
      rows.template load<kDense, 0>(rows_scale, hidden, parts, range);
      await_tile();
      if constexpr (Operand::kParts == 2 && kN > 64) {
        multiply_fragments<Operand, kN, kShifts>(at, parts, rows_read, release, total);
      } else if constexpr (Operand::kParts >= 2) {
        const bool awaited = group == 0 || left > 1;
        const auto on_way = [&] {
          if (awaited) ptx::named_arrive(kFirstTurn + 1 - group, 256);
        };
        ptx::named_barrier(kFirstTurn + group, 256);
        if constexpr (Operand::kWide)
          multiply_rows_wide<Operand, kN, kShifts>(at, parts, rows_read, release, on_way, total);
        else if constexpr (kTogether)
          multiply_rows_together<Operand, kN, kShifts>(at, parts, rows_read, release, on_way, total);
        else
          multiply_rows_split<Operand, kN, kShifts>(at, parts, rows_read, release, on_way, total);
      } else {
        const auto done = [&] {
          rows_read();
          release();
        };
        multiply_rows_on<Operand, kN, kShifts, kDense, kAtOnce>(rows, at, rows_scale, hidden, go_on, parts, done, range, total);
      }
      raw.advance(tiling.rows_stages);
      tile.advance(tiling.stages);
      if (++chunk == static_cast<int>(tiling.chunks_per_row)) chunk = 0;
    }
    if (flush + 1 == flushes) let_dependents_start();
    int thread = static_cast<int>(threadIdx.x);
    ptx::opaque(thread);  // else what follows from it stays in registers all the time
    // No return: what follows would no longer be known to be uniform in a warp.
    bool keeps = true;
    if constexpr (kN == 32) {
      if (tiling.adds_turns) keeps = add_turns(place.free, thread % 128, group == 0, total);
    }
    const int slice = place.slice * flushes + flush;
    if (keeps)
      store_partial<kN, kShifts>(problem, tiling, place, turns && !tiling.adds_turns ? 2 * slice + group : slice, own_block * 8,
                                 row_of_lane(thread % 32 / 4), thread % 32, power_of_two(exponent / 2),
                                 power_of_two(exponent - exponent / 2), partial, total);
  }
}

/// Lays out a block's shared memory from `base`, a multiple of kRowsAlignment; `*end`: the first byte after it.
__device__ __forceinline__ WgradBuffers lay_out(const WgradTiling& tiling, unsigned char* base, WgradRowBlock& block,
                                                unsigned char** end) {
  WgradBuffers buffers;
  const auto ring = [&](int i, int count, int bytes) {
    const WgradBuffer buffer{base, ptx::shared_address(block.barriers[i]), count, bytes};
    base += count * bytes;
    return buffer;
  };
  buffers.rows = ring(0, tiling.rows_stages, tiling.rows.raw.bytes);
  buffers.columns = ring(1, tiling.columns_stages, tiling.columns.raw.bytes);
  buffers.tiles = ring(2, tiling.stages, tiling.stage_bytes);
  *end = base;
  return buffers;
}

__device__ __forceinline__ void begin_barriers(const WgradBuffer& buffer, std::uint32_t full, std::uint32_t empty) {
  for (int stage = 0; stage < buffer.count; ++stage) {
    ptx::mbarrier_init(buffer.full(stage), full);
    ptx::mbarrier_init(buffer.empty(stage), empty);
  }
}

/// The kernel's last argument: where it writes kAllMarked, or null; the wide kernel's sums.
template <class Operand>
using WgradRest = std::conditional_t<Operand::kWide, WideSums, std::uint32_t*>;

template <class Operand, int kN, int kShifts>
__global__ void __launch_bounds__(wgrad_row_threads({kN, kShifts}, Operand::kParts), 1)
    wgrad_rows_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ WgradTiling tiling,
                      const __grid_constant__ WgradMaps maps, float* __restrict__ partial, WgradScales* scales,
                      const __grid_constant__ WgradRest<Operand> rest) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  std::uint32_t block_index = blockIdx.x;
  if constexpr (Operand::kWide) {
    wait_for_grid_before();
    if (*rest.wide.any == 0) return;
    block_index = rest.take_ticket();
    const auto products = static_cast<std::uint32_t>(tiling.jobs * tiling.slices);
    if (block_index >= products) {
      extern __shared__ __align__(16) unsigned char shared[];
      return rest.template store<wgrad_row_threads({kN, kShifts}, Operand::kParts)>(
          reinterpret_cast<double*>(shared), products, block_index - products, gridDim.x - products);
    }
    if (!rest.wide.has_job(block_index % static_cast<std::uint32_t>(tiling.jobs))) {
      if (threadIdx.x == 0) rest.count_done();
      return;
    }
  }
  constexpr int kThreads = wgrad_row_threads({kN, kShifts}, Operand::kParts), kProducers = kThreads - 256;
  constexpr int kConverters = kProducers - 32;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ WgradRowBlock block;
  const std::uint32_t base = (ptx::shared_address(memory) + 1023) & ~1023U;
  unsigned char* end = nullptr;
  const WgradBuffers buffers = lay_out(tiling, memory + (base - ptx::shared_address(memory)), block, &end);
  auto* copies = reinterpret_cast<WgradCopy*>(end);
  end += (copies_of(tiling.rows) + copies_of(tiling.columns)) * static_cast<int>(sizeof(WgradCopy));
  auto* items = reinterpret_cast<WgradRowItem*>(end);
  if (threadIdx.x == 0) {
    block.place = wgrad_place(block_index, tiling);
    block.place.free = reinterpret_cast<float*>(buffers.columns.stages);
    begin_barriers(buffers.rows, 1, 256);
    begin_barriers(buffers.columns, 1, kConverters);
    begin_barriers(buffers.tiles, kConverters, 256);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const WgradPlace& place = block.place;
  list_copies<typename Operand::Source>(tiling, maps, place, copies);
  for (int item = static_cast<int>(threadIdx.x); item < wgrad_listed_items(tiling); item += kThreads)
    items[item] = make_row_item(tiling.columns, place.column_block, item, sizeof(typename Operand::Source));
  __syncthreads();
  WgradRange range{__float2half2_rn(0.0F), 0};
  constexpr bool kInPairs = wgrad_pairs_fit({kN, kShifts}, Operand::kParts);
  constexpr WgradRegisters kRegisters = wgrad_registers({kN, kShifts}, Operand::kParts);
  constexpr int kItems = wgrad_items_at_once({kN, kShifts}, Operand::kParts, Operand::kScaled);
  const auto exponent_of = [&](bool of_y) {
    constexpr int kTarget = Operand::kWide ? kWideWgradTarget : kSourceTarget;
    return Operand::kScaled ? scale_exponent(largest_of(of_y ? scales->y_largest : scales->x_largest), kTarget) : 0;
  };
  // The first consumer warp, which has registers for it, finds out and tells all others.
  const auto ends_early = [&](int barrier, int threads) {
    if constexpr (WgradSplit<Operand>::kHalves) {
      if (rest == nullptr) return false;
      ptx::named_barrier(barrier, threads);
      return __shfl_sync(0xffffffffU, block.ends_early ? 1 : 0, 0) != 0;
    }
    return false;
  };
  if (threadIdx.x < kProducers) {
    ptx::registers_down<kRegisters.converter>();
    if (threadIdx.x < 32) {
      // Scaled operands have been sampled, so they are ready when this kernel starts.
      if constexpr (!Operand::kScaled) wait_for_grid_before();
      copy_steps<WgradSplit<Operand>::kHalves>(tiling, place, buffers, copies, [&] { return ends_early(kCopierKnows, 64); });
    } else {
      wait_for_grid_before();
      if (ends_early(kConvertersKnow, kConverters + 32)) return;
      const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32 - 1, 0);
      constexpr int kWarps = kConverters / 32;
      const auto convert = [&](auto in_pairs) {
        convert_steps<Operand, kWarps, kItems, decltype(in_pairs)::value,
                      wgrad_multiplies_together({kN, kShifts}, Operand::kParts)>(
            tiling, maps.columns, place, buffers, items + (threadIdx.x - 32),
            (tiling.columns.items / 32 + kWarps - 1 - warp) / kWarps, power_of_two(exponent_of(!tiling.swapped)), range);
      };
      if (kInPairs && tiling.columns.in_pairs)
        convert(std::bool_constant<kInPairs>{});
      else
        convert(std::false_type{});
      if constexpr (WgradSplit<Operand>::kHalves) report(range, tiling, scales);
    }
  } else {
    ptx::registers_up<kRegisters.consumer>();
    wait_for_grid_before();
    const int rows_exponent = exponent_of(tiling.swapped), columns_exponent = exponent_of(!tiling.swapped);
    if constexpr (WgradSplit<Operand>::kHalves) {
      if (rest != nullptr && threadIdx.x / 32 == kProducers / 32) {
        const bool ends = is_mixed(scales, problem, tiling);
        if (threadIdx.x % 32 == 0) {
          block.ends_early = ends;
          if (ends && blockIdx.x == 0) *rest = kAllMarked;
        }
        ptx::named_arrive(kCopierKnows, 64);
        ptx::named_arrive(kConvertersKnow, kConverters + 32);
      }
    }
    if (ends_early(kConsumersKnow, 256)) {
      // No copy may arrive after the block's end.
      for (int stage = 0; stage < place.begun; ++stage) {
        ptx::mbarrier_wait(buffers.columns.full(stage), 0);
        ptx::mbarrier_wait(buffers.rows.full(stage), 0);
      }
      return;
    }
    consume_stride1<Operand, kN, kShifts, kProducers>(problem, tiling, maps.rows, place, buffers,
                                                      -rows_exponent - columns_exponent, power_of_two(rows_exponent), range,
                                                      partial);
    if constexpr (WgradSplit<Operand>::kHalves) report(range, tiling, scales);
    if constexpr (Operand::kWide) {
      ptx::named_barrier(kConsumersDone, 256);
      if (threadIdx.x == kProducers) rest.count_done();
    }
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
