#pragma once
// Forward and dgrad of stride 1 with few columns and short reductions on wgmma (sm_90a), rows in and out as boxes of tensor
// maps. The mathematics are in cuda/conv/tap_gemm.hpp; weights_in_registers/source_bulk/kernel.cuh is the form for other
// strides.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/recompute.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/store.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma_registers.cuh"
#include "cuda/ptx/wgmma_sparse.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kBoxesThreads = 4 * 128;
inline constexpr int kBoxesSums = kBoxesPositions / 2;  // of a thread

template <class Operand_, int kDepths_, bool kHalf_, BoxesRows kRows_, bool kBeside_>
struct BoxesMode {
  using Operand = Operand_;
  static constexpr int kDepths = kDepths_;
  static constexpr bool kHalf = kHalf_, kStacked = kHalf_ && Operand::kParts == 2;
  static constexpr BoxesRows kRows = kRows_;
  static constexpr bool kBeside = kBeside_;  // a residual, a derivative's result, or both
  using Beside = std::conditional_t<kBeside, BoxesBesides, BoxesNothing>;
  // Has both at once: other kernels would spill.
  static constexpr bool kBoth = kBeside && kRows_ == BoxesRows::whole && boxes_have_both(Operand::kParts, kHalf, kDepths);
  static constexpr bool kMayDraw = kRows_ != BoxesRows::any;
  static constexpr bool kSparse = kStacked && kRows_ == BoxesRows::whole;  // products of the source's low halves
  static constexpr int kColumns = kHalf ? 1 : 2;                           // of a thread
  static constexpr int kSets = Operand::kParts == 2 && !kStacked ? 2 : 1;  // of weights

  /// The staged row of number `half` of a thread's columns.
  __device__ static __forceinline__ int row_of(int warp, int lane, int half) {
    const int own = kRows == BoxesRows::whole ? whole_row(lane / 4) : lane / 4;
    return kHalf ? warp * 8 + own : warp * 16 + own + 8 * half;
  }
};

/// The weights of 64 rows of gemm_m as operands of up to kDepths products; zeros in what is left of them.
template <class Mode>
struct BoxesWeights {
  std::uint32_t of[Mode::kSets][Mode::kDepths][4];

  /// Of two products that follow each other, one fragment of both's high halves and one of their low ones, and back again.
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

  /// From what pack_kernel wrote.
  __device__ __forceinline__ void load(const BoxesSteps& steps, const unsigned char* __restrict__ packed, int warp, int lane) {
    const int part = steps.rows / 8 * steps.columns;
#pragma unroll
    for (int i = 0; i < Mode::kDepths; ++i) {
      const auto product = static_cast<int>(i < steps.depths ? steps.products[i].weights : 0);
#pragma unroll
      for (int set = 0; set < Mode::kSets; ++set) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const int half = word % 2;
          const int row = Mode::row_of(warp, lane, half);
          const int column = boxes_column<Mode::kHalf>(steps, row);
          const int at = product + (Mode::kStacked ? half : set) * part + word / 2 * steps.columns + column;
          const bool exists = i < steps.depths && column < steps.columns && (!Mode::kHalf || Mode::kStacked || half == 0);
          of[set][i][word] = exists ? reinterpret_cast<const std::uint32_t*>(packed)[4 * at + lane % 4] : 0;
        }
      }
    }
  }
};

/// An operand `offset` times 16 bytes further, in the half of its descriptor that has the address: in one addition.
__device__ __forceinline__ std::uint64_t further_operand(std::uint64_t operand, std::uint32_t offset) {
  return (operand & ~std::uint64_t{0xffffffffU}) | (static_cast<std::uint32_t>(operand) + offset);
}

/// All products of a tile; the sums are under way when this returns. `meanwhile`: what there is to do while mixed products are.
template <class Mode, class Meanwhile>
__device__ __forceinline__ void multiply_boxes(const BoxesSteps& steps, std::uint32_t source, BoxesWeights<Mode>& weights,
                                               float (&sums)[kBoxesSums], const Meanwhile& meanwhile) {
  using Mma = ptx::WgmmaFromRegisters<Mode::Operand::kType, kBoxesPositions, false>;
  constexpr bool kTwo = Mode::Operand::kParts == 2;
  const std::uint64_t high = ptx::operand_descriptor(source, static_cast<std::uint32_t>(steps.tile.window) * 16);
  const std::uint64_t low = further_operand(high, static_cast<std::uint32_t>(steps.tile.items));
  if constexpr (kTwo) {
    if constexpr (Mode::kSparse) weights.exchange();
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < Mode::kDepths; ++i) {
      if constexpr (Mode::kSparse) {
        if (i % 2 == 0)
          ptx::multiply_alternating(sums, weights.of[0][i], further_operand(low, steps.products[i].source), i > 0);
        continue;
      }
      if constexpr (Mode::kSets == 2)
        Mma::multiply(sums, weights.of[1][i], further_operand(high, steps.products[i].source), i > 0);
      Mma::multiply(sums, weights.of[0][i], further_operand(low, steps.products[i].source), Mode::kSets == 2 || i > 0);
    }
    ptx::wgmma_commit();
    meanwhile();
    ptx::wgmma_wait<0>();
    ptx::settle(sums);
    if constexpr (Mode::kSparse) weights.exchange();
#pragma unroll
    for (int i = 0; i < kBoxesSums; ++i) sums[i] *= Mode::kSparse && i % 4 >= 2 ? 1.0F : 1.0F / kLowScale;
    ptx::settle(sums);
  }
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < Mode::kDepths; ++i)
    Mma::multiply(sums, weights.of[0][i], further_operand(high, steps.products[i].source), kTwo || i > 0);
  ptx::wgmma_commit();
}

/// Whether one of a warp's sums may be wrong in a tile with such faults.
template <class Mode>
__device__ __forceinline__ bool is_doubtful(const BoxesSteps& steps, Faults faults, int warp, int lane,
                                            const float (&sums)[kBoxesSums]) {
  if (faults >= kNeverFault) return true;
  const float least = least_right<typename Mode::Operand>(faults);
  bool doubts = false;
#pragma unroll
  for (int half = 0; half < Mode::kColumns; ++half) {
    float smallest = least;
#pragma unroll
    for (int i = 0; i < kBoxesPositions / 4; ++i) {
      const int at = i / 2 * 4 + 2 * half + i % 2;
      smallest = fminf(smallest, fabsf(Mode::kStacked ? fmaf(sums[at + 2], 1.0F / kLowScale, sums[at]) : sums[at]));
    }
    doubts = doubts || (smallest < least && boxes_column<Mode::kHalf>(steps, Mode::row_of(warp, lane, half)) < steps.columns);
  }
  return __any_sync(0xffffffffU, doubts) != 0;
}

/// A tile whose outputs are staged.
struct BoxesStaged {
  int row = -1, t0 = 0;  // of the output, its first; none is staged
};

template <class Mode>
__device__ __forceinline__ void consume_boxes(const TapGemm& form, const BoxesSteps& steps, const BoxesMaps& maps,
                                              const typename Mode::Beside& beside, const BoxesLayout& layout,
                                              const unsigned char* __restrict__ packed, const float* __restrict__ bias,
                                              float* __restrict__ out, const OperandHeader* header, const ExactSource& exact,
                                              const Epilogue& epilogue, const BoxesTiles& tiles, const DrawnOrder& order,
                                              unsigned char* memory, float* staging, int consumer, int warp, int lane) {
  Walk walk(steps, consumer);
  const std::uint32_t g = steps.by_column_tiles.divide(walk.tile);
  const auto first_column = static_cast<int>(walk.tile - g * steps.by_column_tiles.divisor) * steps.columns;
  const auto* state = reinterpret_cast<const State*>(packed);
  BoxesWeights<Mode> weights;
  weights.load(steps, packed + kWeightHeaderBytes + static_cast<std::int64_t>(walk.tile) * steps.weight_bytes, warp, lane);
  const Faults of_weights = weight_faults(static_cast<Split>(state->weight_split), form.rows * form.taps);
  const int weight_exponent = scale_exponent(state->weight_largest, kWeightTarget);
  wait_for_grid_before();
  const int exponent = -source_exponent(header) - weight_exponent;
  const int beyond = exponent < -126 || exponent > 127 ? exponent / 2 : 0;  // no float has it
  const int q = lane % 4;
  constexpr bool kWhole = Mode::kRows == BoxesRows::whole;
  BoxesColumn columns[Mode::kColumns];
#pragma unroll
  for (int half = 0; half < Mode::kColumns; ++half) {
    const int row = Mode::row_of(warp, lane, half);
    const int column = boxes_column<Mode::kHalf>(steps, row);
    BoxesColumn& own = columns[half];
    own.shift = Mode::kRows == BoxesRows::whole ? 0 : boxes_shift<Mode::kHalf>(steps, row);
    own.to = staging + row * kBoxesWidth + 2 * q - own.shift;
    own.place = static_cast<std::uint32_t>(whole_place(row, q));
    own.exists = column < steps.columns;
    own.factor = power_of_two(exponent - beyond);
    const bool exists = column < steps.columns;
    const std::int64_t channel = g * form.out_channels + first_column + column;
    own.offset = exists && bias != nullptr ? bias[channel] : 0.0F;
    own.first = out + channel * form.out_length + 2 * q;
    own.before = exists ? min(own.shift, static_cast<int>(form.out_length)) : 0;
  }
  WrongTiles wrong{reinterpret_cast<WrongTiles::Entry*>(memory + (layout.wrong(4 * consumer + warp) - layout.base))};
  BoxesTurn at(consumer);
  const bool is_drawn = Mode::kMayDraw && steps.is_drawn;
  std::uint32_t last = kNoTile;  // of drawn tiles: the last that has doubtful sums of this warp
  const int staged_bytes = steps.columns * kBoxesLine * static_cast<int>(sizeof(float));  // of a line of whole rows
  // By a vote the compiler knows it to be the same in a warp, and does not look again at each tile.
  const bool is_rare = __any_sync(0xffffffffU, beyond != 0 || epilogue.is_needed()) != 0;
  constexpr bool kLate = Mode::Operand::kParts == 2;  // a tile is sent while the next one's mixed products are under way
  BoxesStaged staged;
  const auto send = [&] {
    if (lane == 0)
      send_boxes<Mode::kRows, Mode::kHalf>(form, steps, maps, staged.row, staged.t0,
                                           layout.staging + static_cast<std::uint32_t>(consumer * steps.staging_bytes), warp);
    staged.row = -1;
  };
  const auto settle_staging = [&] {
    ptx::fence_async_shared();
    ptx::named_barrier(1 + consumer, 128);
  };
  for (; is_drawn || walk.more(); walk.advance()) {
    float sums[kBoxesSums];
    ptx::mbarrier_wait(layout.full(at.barrier()), at.parity());
    if (is_drawn) {
      walk.above = tiles.read(tiles.of_stage(at.stage), lane);
      if (walk.above == kNoTile) {
        if (lane == 0) ptx::mbarrier_arrive(layout.empty(at.barrier()));
        break;
      }
    }
    multiply_boxes<Mode>(steps, layout.sources + static_cast<std::uint32_t>(at.stage * steps.source_bytes), weights, sums, [&] {
      if (staged.row < 0) return;
      settle_staging();
      send();
    });

    const std::uint32_t n = steps.by_position_tiles.divide(walk.above);
    const std::uint32_t tile = walk.above - n * steps.by_position_tiles.divisor;
    int first_row =
        static_cast<int>((n * static_cast<std::uint32_t>(form.G) + g) * static_cast<std::uint32_t>(form.out_channels)) +
        first_column;
    int t0 = static_cast<int>(tile) * steps.position_step;
    if constexpr (kLate) {  // found here, while products are under way, not behind them
      ptx::forget(first_row);
      ptx::forget(t0);
    }
    const Faults faults = faults_of_tile(memory + (layout.faults(at.stage) - layout.base), of_weights, lane);
    if (lane == 0) ptx::bulk_wait_read();  // the staging is free again
    ptx::named_barrier(1 + consumer, 128);
    const bool is_end = kWhole ? form.out_length % kBoxesLine != 0 && t0 + kBoxesPositions > static_cast<int>(form.out_length)
                               : t0 + kBoxesPositions + 3 >= static_cast<int>(form.out_length);
    // What lies beside the outputs is brought to where they will be staged, and waited for; of two things one by one.
    [[maybe_unused]] const auto bring = [&](int which, std::int64_t distance) {
      if constexpr (Mode::kBeside) {
        if (is_end) {
          bring_ends<Mode::kRows, Mode::kHalf>(form, steps, distance, t0, staging, out + first_row * form.out_length, warp,
                                               lane);
          if (warp == 0 && lane == 0) ptx::mbarrier_arrive(layout.beside(consumer));  // what is brought is a phase each
        } else if (warp == 0 && lane == 0) {
          bring_boxes<Mode::kRows, Mode::kHalf>(steps, beside.of[which], first_row, t0,
                                                layout.staging + static_cast<std::uint32_t>(consumer * steps.staging_bytes),
                                                layout.beside(consumer));
        }
      }
    };
    [[maybe_unused]] const auto await_brought = [&](int phase) {
      if (is_end) ptx::named_barrier(1 + consumer, 128);
      ptx::mbarrier_wait(layout.beside(consumer), static_cast<std::uint32_t>(phase & 1));
    };
    if constexpr (Mode::kBeside) bring(0, epilogue.first_beside());
    ptx::wgmma_wait<0>();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(at.barrier()));
    at.advance(steps.stages);
    ptx::settle(sums);
    bool doubts = false;
    if (faults != 0) {
      doubts = is_doubtful<Mode>(steps, faults, warp, lane, sums);
      if (doubts && is_drawn) {
        std::uint32_t* const entry = order.doubts(steps, walk, warp);
        if (lane == 0) entry[0] = faults, entry[1] = last;
        last = walk.above;
      } else if (doubts) {
        wrong.add(walk.above, faults);
      }
    }
    const bool stays_plain = doubts || (!is_drawn && wrong.count == WrongTiles::kMost);  // until it is right
    const auto stage = [&](const auto& made) {
#pragma unroll
      for (int half = 0; half < Mode::kColumns; ++half) {
        const BoxesColumn& own = columns[half];
        if constexpr (kWhole) {
          if (own.exists)
            stage_whole<Mode::kStacked>(own.place, own.factor, own.offset, sums, half, staged_bytes,
                                        reinterpret_cast<unsigned char*>(staging), made);
        } else {
          stage_boxes<Mode::kRows, Mode::kStacked>(own, sums, half, q, made);
          if (tile == 0) {
            int sample = static_cast<int>(n);
            ptx::forget(sample);  // addresses are found here, for the few tiles that need them
            store_before<Mode::kStacked>(own, sums, half, q, sample * (form.G * form.out_channels * form.out_length), made);
          }
        }
      }
    };
    if constexpr (Mode::kBeside) {
      if (beyond != 0) {
#pragma unroll
        for (float& sum : sums) sum *= power_of_two(beyond);
      }
      if (!kWhole && tile == 0) {
        const std::int64_t ahead = static_cast<std::int64_t>(n) * (form.G * form.out_channels * form.out_length);
#pragma unroll
        for (int half = 0; half < Mode::kColumns; ++half)
          finish_before<Mode::kStacked>(columns[half], sums, half, q, ahead, epilogue, stays_plain);
      }
      const auto finish = [&](FinishPart part, int phase) {
        await_brought(phase);
#pragma unroll
        for (int half = 0; half < Mode::kColumns; ++half)
          stage_beside<Mode::kRows, Mode::kStacked>(columns[half], sums, half, q, staged_bytes,
                                                    reinterpret_cast<unsigned char*>(staging), epilogue, part, stays_plain);
      };
      if (Mode::kBoth && epilogue.has_both()) {
        finish(FinishPart::derivative, 0);
        settle_staging();  // all have read it
        bring(1, epilogue.residual);
        finish(FinishPart::residual, 1);
      } else {
        finish(FinishPart::all, at.tile / kPairs - 1);  // of this tile
      }
    } else if (!is_rare) {
      stage(BoxesPlain());
    } else {
      LightActivation activation(epilogue);
      if (!epilogue.is_needed() || stays_plain) activation.is_relu = false, activation.slope = 1.0F;
      if (beyond != 0) {
#pragma unroll
        for (float& sum : sums) sum *= power_of_two(beyond);
      }
      stage(activation);
    }
    staged.row = first_row;
    staged.t0 = t0;
    if (kLate && !is_end) continue;
    settle_staging();
    if (is_end) {
      float* const first = out + staged.row * form.out_length;
      if constexpr (kWhole)
        store_whole(form, steps, staged.t0, staging, first, warp, lane), staged.row = -1;
      else
        store_ends<Mode::kHalf>(form, steps, maps, staged.t0, staging, first, warp * 32 + lane);
    }
    if (staged.row >= 0) send();
  }
  if (staged.row >= 0) {
    settle_staging();
    send();
  }
  if (lane == 0) ptx::bulk_wait();
  ptx::named_barrier(1 + consumer, 128);  // each warp's first thread has stored all warps' sums
  if (wrong.count != 0 || last != kNoTile)
    repair_boxes<Mode>(form, steps, exact, bias, out, epilogue, order, walk, wrong, last, exponent, warp);
}

template <class Mode>
__global__ void __launch_bounds__(kBoxesThreads, 1)
    boxes_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ BoxesSteps steps,
                 const __grid_constant__ BoxesMaps maps, const __grid_constant__ typename Mode::Beside beside,
                 const unsigned char* __restrict__ packed, const float* __restrict__ bias, float* __restrict__ out,
                 const OperandHeader* header, const __grid_constant__ ExactSource exact,
                 const __grid_constant__ Epilogue epilogue, const DrawnOrder order) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char boxes_memory[];
  const std::uint32_t base = (ptx::shared_address(boxes_memory) + 1023) & ~1023U;
  unsigned char* memory = boxes_memory + (base - ptx::shared_address(boxes_memory));
  // Through a shuffle the compiler knows them to be the same in a warp; else it serialises the wgmmas.
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0);
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const BoxesLayout layout(base, steps);
  const BoxesTiles tiles{reinterpret_cast<volatile std::uint32_t*>(memory + (layout.tiles() - base))};
  if (threadIdx.x == 0) {
    for (int turn = 0; turn < kPairs * kBoxesTurns; ++turn) {
      ptx::mbarrier_init(layout.full(turn), 4);
      ptx::mbarrier_init(layout.empty(turn), 4 + 128);  // the warps that multiply, the threads that converted
    }
    for (int stage = 0; stage < steps.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 1);
      ptx::mbarrier_init(layout.raw_empty(stage), 4);
    }
    for (int consumer = 0; Mode::kBeside && consumer < kPairs; ++consumer) ptx::mbarrier_init(layout.beside(consumer), 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (group >= 2) {
    ptx::registers_down<72>();
    convert_boxes<typename Mode::Operand, Mode::kRows != BoxesRows::any, Mode::kSparse>(
        form, steps, maps, layout, memory + (layout.sources - base), memory + (layout.raw - base), header,
        reinterpret_cast<std::uint32_t*>(memory + (layout.faults(0) - base)), tiles, order, group - 2, warp * 32 + lane);
    return;
  }
  ptx::registers_up<184>();
  consume_boxes<Mode>(form, steps, maps, beside, layout, packed, bias, out, header, exact, epilogue, tiles, order, memory,
                      reinterpret_cast<float*>(memory + (layout.staging - base) + group * steps.staging_bytes), group, warp,
                      lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
