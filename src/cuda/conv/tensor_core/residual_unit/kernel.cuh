#pragma once
// A residual unit on wgmma (sm_90a) whose middle tensor stays in shared memory (conv/residual_unit.hpp).
//
// gemm_k = (tap, input channel); sums.cuh says which of positions and output channels are gemm_m and gemm_n. A thread block
// computes one block of positions after another: kPositions positions of the middle, and the outputs whose taps all lie in
// them. Its source is copied to shared memory while the block before is computed. Activated source, middle and outputs take
// turns in one operand: vectors of 8 channels, position by position, so that a tap is another start address. The warpgroups
// activate the source, multiply, activate the sums, store them as the middle, and multiply again, to sums that begin with the
// source. The warps take turns to stream the weights of both convolutions through a ring. Where an SM has two thread blocks,
// one multiplies while the other loads or stores.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/residual_unit/outputs.cuh"
#include "cuda/conv/tensor_core/residual_unit/sums.cuh"
#include "cuda/conv/tensor_core/residual_unit/tiling.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace polyphase::cuda::tensor_core {

/// Shared memory of a thread block, as addresses and as offsets from its start.
template <class Shape>
struct UnitLayout {
  std::uint32_t base;
  int ring, source, snakes;
  static constexpr int kBiases = Shape::kBarrierBytes, kOperand = kBiases + Shape::kBiasBytes;
  __device__ __forceinline__ UnitLayout(std::uint32_t start, const UnitTiling& tiling)
      : base(start),
        ring(kOperand + operand_room(tiling)),
        source(ring + (Shape::kWhole ? tiling.weight_bytes : Shape::kStages * Shape::kStageBytes)),
        snakes(source + tiling.source_boxes * Shape::kChannels * tiling.source_width * 2) {}
  [[nodiscard]] __device__ __forceinline__ static int operand_bytes(const UnitTiling& tiling) {
    return tiling.pitch * Shape::kOperandVectors * 16;
  }
  [[nodiscard]] __device__ __forceinline__ static int operand_room(const UnitTiling& tiling) {
    const int operands = Shape::kOperands * operand_bytes(tiling);
    if constexpr (Shape::kRowBytes > 0) return max(operands, Shape::kRowBytes);
    return operands;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t full(int stage) const {
    return base + static_cast<std::uint32_t>(stage) * 8;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(Shape::kStages + stage); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t source_full() const { return full(2 * Shape::kStages); }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t stage(int stage) const {
    return base + static_cast<std::uint32_t>(ring + stage * Shape::kStageBytes);
  }
};

/// What a thread of a unit's kernel begins with.
template <class Shape>
struct UnitThread {
  unsigned char* memory;  ///< shared memory, from layout.base on
  UnitLayout<Shape> layout;
  int thread, warp, lane;
};
template <class Shape>
__device__ __forceinline__ UnitThread<Shape> unit_thread(const UnitTiling& tiling) {
  extern __shared__ __align__(16) unsigned char shared[];
  const std::uint32_t base = (ptx::shared_address(shared) + 127) & ~127U;
  const auto thread = static_cast<int>(threadIdx.x);
  return {shared + (base - ptx::shared_address(shared)), UnitLayout<Shape>(base, tiling), thread,
          __shfl_sync(0xffffffffU, thread / 32, 0), thread % 32};
}

/// How far a warp is with the stages of weights.
struct UnitProgress {
  Ring ring;     ///< the stage whose products come next
  int done = 0;  ///< stages before it
  int next = 0;  ///< the stage that this warp copies next, of those of a block
};

/// The stages of weights of both convolutions, of one block of positions after another. The warps take turns to copy them to
/// the ring. Or (kWhole) there is room for all of a convolution, which are one copy.
template <class Shape>
struct UnitWeights {
  /// A stage is copied to the place of the one this many before that whose products begin.
  static constexpr int kBehind = Shape::kStages >= 5 ? 2 : 1;
  const unsigned char *first, *second;
  int of_first, of_block, total;

  __device__ __forceinline__ UnitWeights(const UnitTiling& tiling, const unsigned char* of_first_conv,
                                         const unsigned char* of_second_conv, int blocks)
      : first(of_first_conv),
        second(of_second_conv),
        of_first(tiling.taps[0] * Shape::kParts * Shape::kPasses),
        of_block(of_first + tiling.taps[1] * Shape::kParts * Shape::kPasses),
        total(blocks * of_block) {}
  /// Warp i begins the barriers of stage i, and copies it. One thread of each warp.
  __device__ __forceinline__ void begin(const UnitLayout<Shape>& layout, int warp) const {
    if constexpr (Shape::kWhole) {
      if (warp != 0) return;
      ptx::mbarrier_init(layout.full(0), 1);
      ptx::fence_mbarrier_init();
      return copy_whole(layout, 0);
    }
    if (warp >= Shape::kStages) return;
    ptx::mbarrier_init(layout.full(warp), 1);
    ptx::mbarrier_init(layout.empty(warp), Shape::kWarps);
    ptx::fence_mbarrier_init();
    if (warp < total) copy_to(layout, warp % of_block, warp);
  }
  /// Copies the weights of a convolution, if they are whole. No warp reads those before any more. One thread.
  __device__ __forceinline__ void copy_whole(const UnitLayout<Shape>& layout, int conv) const {
    const auto bytes = static_cast<std::uint32_t>((conv == 0 ? of_first : of_block - of_first) / Shape::kPasses *
                                                  Shape::kWeightParts * Shape::kStageBytes);
    ptx::mbarrier_arrive_expect(layout.full(0), bytes);
    ptx::bulk_copy(layout.stage(0), conv == 0 ? first : second, bytes, layout.full(0));
  }
  [[nodiscard]] __device__ __forceinline__ UnitProgress progress(int warp) const {
    const int turn = warp < kBehind ? warp + Shape::kWarps : warp;
    return {.ring = {}, .next = (turn + Shape::kStages - kBehind) % of_block};
  }
  /// If it is this warp's turn: copies a stage as soon as its place is free.
  __device__ __forceinline__ void copy_ahead(const UnitLayout<Shape>& layout, int warp, int lane, UnitProgress& at) const {
    static_assert(Shape::kHasProducer || (Shape::kWarps & (Shape::kWarps - 1)) == 0);
    if ((at.done & (Shape::kWarps - 1)) != warp || at.done < kBehind || at.done + Shape::kStages - kBehind >= total) return;
    if (lane == 0) copy_next(layout, at);
  }
  /// Copies all stages after the first ones, by a warp that does nothing else.
  __device__ __forceinline__ void copy_all(const UnitLayout<Shape>& layout, int lane) const {
    for (int i = Shape::kStages; lane == 0 && i < total; ++i) {
      ptx::mbarrier_wait(layout.empty(i % Shape::kStages), (i / Shape::kStages + 1) & 1);
      copy_to(layout, i % of_block, i % Shape::kStages);
    }
  }

 private:
  /// Where stage i of a convolution's `stages` is packed: with three passes over two parts the last has the first part again.
  __device__ __forceinline__ static int packed_stage(int i, [[maybe_unused]] int stages) {
    if constexpr (Shape::kWeightParts == 2) {
      const int packed = stages / 3 * 2;
      return i < packed ? i : i - packed;
    }
    return i;
  }
  /// Without divisions, which would cost the warpgroup as much time as a product.
  __device__ __forceinline__ void copy_next(const UnitLayout<Shape>& layout, UnitProgress& at) const {
    const bool wraps = at.ring.stage < kBehind;
    const int place = wraps ? at.ring.stage + Shape::kStages - kBehind : at.ring.stage - kBehind;
    ptx::mbarrier_wait(layout.empty(place), wraps ? at.ring.parity ^ 1 : at.ring.parity);
    copy_to(layout, at.next, place);
    at.next += Shape::kWarps;
    while (at.next >= of_block) at.next -= of_block;
  }
  /// Copies a stage of a block.
  __device__ __forceinline__ void copy_to(const UnitLayout<Shape>& layout, int own, int place) const {
    const unsigned char* const from = own < of_first
                                          ? first + packed_stage(own, of_first) * Shape::kStageBytes
                                          : second + packed_stage(own - of_first, of_block - of_first) * Shape::kStageBytes;
    ptx::mbarrier_arrive_expect(layout.full(place), Shape::kStageBytes);
    ptx::bulk_copy(layout.stage(place), from, Shape::kStageBytes, layout.full(place));
  }
};

/// Copies a block's source as it is in memory; zeros outside the sample. One thread.
template <class Shape>
__device__ __forceinline__ void copy_unit_source(const UnitTiling& tiling, const UnitLayout<Shape>& layout,
                                                 const CUtensorMap* map, const UnitBlock& block) {
  const int box_bytes = Shape::kChannels * tiling.source_width * 2;
  ptx::mbarrier_arrive_expect(layout.source_full(), static_cast<std::uint32_t>(tiling.source_boxes * box_bytes));
  for (int box = 0; box < tiling.source_boxes; ++box)
    ptx::tensor_copy(layout.base + static_cast<std::uint32_t>(layout.source + box * box_bytes), map,
                     block.begin - tiling.before + box * tiling.source_width, 0, block.sample, layout.source_full());
}

/// Makes the operand of a block's source: transposes matrices of 8 channels and 8 positions, four of them at a time, and
/// activates them.
template <class Shape, class Activation>
__device__ __forceinline__ void activate_unit_source(const UnitTiling& tiling, std::uint32_t source, std::uint32_t operand,
                                                     const Activation& activation, int warp, int lane) {
  constexpr int kParts = Shape::kVectors / 4, kWarps = Shape::kWarps / kParts;  // of a part of the channels
  const int part = warp % kParts;
  // Lane 8i + r reads channel r of matrix i, and writes its position r.
  const std::uint32_t from = source + static_cast<std::uint32_t>(lane * tiling.source_width * 2);
  const std::uint32_t to = operand + static_cast<std::uint32_t>((lane / 8 * tiling.pitch + lane % 8) * 16);
  SnakeWord of_vector[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) of_vector[k] = activation.of_neighbours(part * 32 + k * 8 + lane % 4 * 2);
  if (warp >= kWarps * kParts) return;
#pragma unroll 2
  for (int block = warp / kParts; block < tiling.source_blocks; block += kWarps) {
    const int position = block * 8;
    std::uint32_t words[4];
    ptx::load_matrices_transposed(
        words, from + static_cast<std::uint32_t>(part * 32 * tiling.source_width * 2 + source_offset<Shape>(tiling, position)));
    activation.apply(words, [&](int k) -> const SnakeWord& { return of_vector[k]; });
    ptx::store_matrices(to + static_cast<std::uint32_t>((part * 4 * tiling.pitch + position) * 16), words);
  }
}

/// Where a tap's stage begins in an operand, from its beginning in units of 16 bytes.
template <class Shape>
__device__ __forceinline__ std::uint32_t stage_offset(int stage, int step, int pitch) {
  const int tap = stage / Shape::kParts, part = stage % Shape::kParts;
  return static_cast<std::uint32_t>(tap * step + part * Shape::kStageDepths * 2 * pitch);
}

/// sums += the products of a stage: descriptors of the positions that it reads and of its weights.
template <class Operand, class Shape, class Sums>
__device__ __forceinline__ void multiply_stage(std::uint64_t positions, std::uint64_t weights, int pitch, Sums& sums) {
  ptx::wgmma_fence();
#pragma unroll
  for (int depth = 0; depth < Shape::kStageDepths; ++depth)
    sums.template multiply<Operand>(positions + static_cast<std::uint32_t>(depth * 2 * pitch),
                                    weights + depth * 2 * Shape::kChannels);
  ptx::wgmma_commit();
}

/// sums += the products of stages [begin, end). `operand`: its address, of which stage i reads from offset(i) on
/// (stage_offset()). Where all weights are in shared memory there is nothing to wait for, and no stage to leave.
template <class Operand, class Shape, class Offset, class Sums>
__device__ __forceinline__ void multiply_unit(const UnitLayout<Shape>& layout, std::uint32_t operand, int pitch, int begin,
                                              int end, const Offset& offset, int warp, int lane,
                                              const UnitWeights<Shape>& weights, UnitProgress& at, Sums& sums) {
  const std::uint64_t first =
      ptx::operand_descriptor(operand + static_cast<std::uint32_t>(sums.first * 16), static_cast<std::uint32_t>(pitch) * 16);
  sums.fence();
  if constexpr (Shape::kWhole) {
    const std::uint64_t all = ptx::operand_descriptor(layout.stage(0), Shape::kChannels * 16);
#pragma unroll 1
    for (int i = begin; i < end; ++i)
      multiply_stage<Operand, Shape>(first + offset(i), all + static_cast<std::uint32_t>(i * (Shape::kStageBytes / 16)), pitch,
                                     sums);
    ptx::wgmma_wait<0>();
  } else {
    std::uint32_t held = 0;  // the barrier of the stage that the products before read
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      const std::uint64_t positions = first + offset(i);
      const std::uint64_t own = ptx::operand_descriptor(layout.stage(at.ring.stage), Shape::kChannels * 16);
      ptx::mbarrier_wait(layout.full(at.ring.stage), at.ring.parity);
      multiply_stage<Operand, Shape>(positions, own, pitch, sums);
      // All warps have left the last stage but one; the last one only after the wait, or soon.
      constexpr bool kEarly = UnitWeights<Shape>::kBehind == 2;
      if (!Shape::kHasProducer && kEarly) weights.copy_ahead(layout, warp, lane, at);
      ptx::wgmma_wait<1>();
      if (held != 0) ptx::mbarrier_arrive(held);
      held = lane == 0 ? layout.empty(at.ring.stage) : 0;
      if (!Shape::kHasProducer && !kEarly) weights.copy_ahead(layout, warp, lane, at);
      at.ring.advance(Shape::kStages);
      ++at.done;
      __syncwarp();
    }
    ptx::wgmma_wait<0>();
    if (held != 0) ptx::mbarrier_arrive(held);
  }
  sums.fence();
}

/// Waits for the weights of the next convolution, if they are whole.
template <class Shape>
__device__ __forceinline__ void wait_for_whole(const UnitLayout<Shape>& layout, UnitProgress& at) {
  if constexpr (Shape::kWhole) {
    ptx::mbarrier_wait(layout.full(0), at.ring.parity);
    at.ring.parity ^= 1;
  }
}

/// The map is that of x. Biases may be null. Weights as residual_unit_pack_kernel writes them.
template <class Operand, UnitKind kKind, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocksPerSm)
    residual_unit_kernel(const __grid_constant__ UnitTiling tiling, const __grid_constant__ CUtensorMap source_map,
                         const unsigned char* __restrict__ first_weights,
                         const typename Operand::Source* __restrict__ first_bias,
                         const unsigned char* __restrict__ second_weights,
                         const typename Operand::Source* __restrict__ second_bias,
                         const __grid_constant__ UnitSnakes<typename Operand::Source> snakes,
                         typename Operand::Source* __restrict__ out, const __grid_constant__ UnitAverage average) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Operand::Source;
  using Sums = std::conditional_t<Shape::kOfPositions, UnitSumsOfPositions<T, Shape>, UnitSumsOfChannels<T, Shape>>;
  constexpr int kChannels = Shape::kChannels;
  constexpr bool kMayAverage = kKind != UnitKind::snake;
  const auto [memory, layout, thread, warp, lane] = unit_thread<Shape>(tiling);
  const auto blocks = static_cast<unsigned>(tiling.blocks);
  const UnitWeights<Shape> weights(tiling, first_weights, second_weights,
                                   static_cast<int>((blocks - blockIdx.x + gridDim.x - 1) / gridDim.x));
  wait_for_grid_before();
  if (lane == 0) weights.begin(layout, warp);
  __syncwarp();
  if (thread == 0) {
    ptx::mbarrier_init(layout.source_full(), 1);
    ptx::fence_mbarrier_init();
    copy_unit_source(tiling, layout, &source_map, UnitBlock(tiling, blockIdx.x));
  }
  auto* const biases = reinterpret_cast<float*>(memory + layout.kBiases);
  static_assert(2 * kChannels <= Shape::kThreads);
  if (thread < 2 * kChannels) {
    const T* const bias = thread < kChannels ? first_bias : second_bias;
    biases[Sums::bias_place(thread)] = bias != nullptr ? static_cast<float>(bias[thread % kChannels]) : 0.0F;
  }
  auto* const pairs = reinterpret_cast<SnakePair*>(memory + layout.snakes);
  if constexpr (kKind == UnitKind::snake) load_snake_pairs<kChannels>(snakes, pairs, thread);
  __syncthreads();
  using Activation = UnitActivation<T, kKind>;
  const Activation before_first{tiling.slope[0], snakes.alpha[0], snakes.beta[0], pairs},
      before_second{tiling.slope[1], snakes.alpha[1], snakes.beta[1], pairs + kChannels / 2};
  const std::uint32_t operand = layout.base + static_cast<std::uint32_t>(layout.kOperand),
                      source = layout.base + static_cast<std::uint32_t>(layout.source);
  if (Shape::kHasProducer && warp == Shape::kWarps) return weights.copy_all(layout, lane);
  const auto synchronize = [] { ptx::named_barrier(1, 32 * Shape::kWarps); };
  Sums sums(tiling, {.operand = operand, .source = source, .warp = warp, .lane = lane});
  UnitProgress at = weights.progress(warp);
  std::uint32_t parity = 0;
  const auto multiply = [&](int conv, std::uint32_t from) {
    const int stages = tiling.taps[conv] * Shape::kParts;
    const auto offset = [&](int stage) { return stage_offset<Shape>(stage, tiling.step[conv], tiling.pitch); };
    wait_for_whole(layout, at);
    multiply_unit<Operand, Shape>(layout, from, tiling.pitch, 0, stages, offset, warp, lane, weights, at, sums);
  };
#pragma unroll 1
  for (unsigned index = blockIdx.x; index < blocks; index += gridDim.x) {
    const UnitBlock block(tiling, index);
    if (index + gridDim.x >= blocks) let_dependents_start();
    ptx::mbarrier_wait(layout.source_full(), parity);
    parity ^= 1;
    activate_unit_source<Shape>(tiling, source, operand, before_first, warp, lane);
    if constexpr (kMayAverage) prefetch_unit_average<Shape>(tiling, average, block, warp, lane);
    ptx::fence_async_shared();
    synchronize();

    sums.begin(biases);
    multiply(0, operand + static_cast<std::uint32_t>(tiling.offset * 16));
    synchronize();  // no warp reads the source's operand any more
    if (Shape::kWhole && thread == 0) weights.copy_whole(layout, 1);
    sums.store_middle(block.begin - tiling.pad, before_second);
    sums.begin(biases + kChannels);
    sums.add_source();
    ptx::fence_async_shared();
    synchronize();
    if (thread == 0 && index + gridDim.x < blocks)
      copy_unit_source(tiling, layout, &source_map, UnitBlock(tiling, index + gridDim.x));
    __syncwarp();

    multiply(1, operand);
    synchronize();  // no warp reads the middle any more
    if (Shape::kWhole && thread == 0 && index + gridDim.x < blocks) weights.copy_whole(layout, 0);
    sums.stage();
    synchronize();
    store_unit_outputs<T, kMayAverage, Shape>(tiling, memory + layout.kOperand, out, average, block, warp, lane);
    synchronize();
  }
#endif
}

}  // namespace polyphase::cuda::tensor_core
