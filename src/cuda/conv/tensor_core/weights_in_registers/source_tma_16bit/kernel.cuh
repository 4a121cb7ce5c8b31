#pragma once
// 16-bit forward and dgrad with few columns and few products on wgmma (sm_90a): weights in registers, boxes of tensors in and
// out, and a source that is turned by matrix loads. The mathematics are in cuda/conv/tap_gemm.hpp.
//
// gemm_m = 64 columns, gemm_n = 256 (208) positions, gemm_k = (tap, row), all of it one stage. Of three warpgroups one copies
// and turns the source, two multiply and store, in turn a tile each.

#include <cstdint>
#include <type_traits>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/layout.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/store.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kTurnedThreads = (kTurnedConsumers + 1) * 128;

template <class T>
inline constexpr ptx::Tensor kTurnedType = std::is_same_v<T, __half> ? ptx::Tensor::f16 : ptx::Tensor::bf16;

/// The column of sums d[0], d[1] (half 0) and d[2], d[3] of every four: of few columns each warp has some.
__device__ __forceinline__ int turned_column(int columns, int thread, int half) {
  const int warp = thread / 32, row = thread % 32 / 4;
  if (columns <= kTurnedColumns / 2) return half == 0 ? warp * 8 + row : kTurnedColumns;
  return warp * 16 + row + 8 * half;
}

/// packed[depth][thread of a consumer]: the four registers of its operand.
template <class T>
__global__ void __launch_bounds__(128)
    turned_pack_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ ConvProblem problem, int classes,
                       bool is_forward, const T* __restrict__ w, uint4* __restrict__ packed) {
  const int depth = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int pairs = static_cast<int>(form.rows) / 16, window = depth / pairs, pair = depth % pairs;
  const std::int64_t k = is_forward ? form.taps - 1 - window : window;
  T values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // Register i/2: row and row + 8 of gemm_m, then both eight rows of gemm_k later.
    const int block = 2 * pair + i / 4, column = turned_column(static_cast<int>(form.columns), thread, i / 2 % 2);
    const std::int64_t row = (block / classes * 8 + lane % 4 * 2 + i % 2) * classes + block % classes;
    const std::int64_t ci = is_forward ? row : column, co = is_forward ? column : row;
    values[i] = column < form.columns ? w[(ci * problem.C_out + co) * problem.K + k] : T(0.0F);
  }
  packed[depth * 128 + thread] = *reinterpret_cast<const uint4*>(values);
}

template <class T, int kDepths, int kN>
__device__ __forceinline__ void multiply_turned(const TurnedSteps& steps, std::uint32_t tile, std::uint32_t zeros,
                                                const std::uint32_t (&weights)[kDepths][4], float (&sums)[kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<kTurnedType<T>, kN, false>;
  const std::uint64_t source = ptx::operand_descriptor(tile, static_cast<std::uint32_t>(steps.slots) * 16);
  const std::uint64_t nothing = (zeros >> 4) & 0x3fff;  // 128 bytes, again and again
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kDepths; ++i)
    Mma::multiply(sums, weights[i], i < steps.depths ? source + steps.product[i] : nothing, i > 0);
  ptx::wgmma_commit();
}

/// A consumer's finished sums into its staging.
template <TurnedLate kLate, class T, TurnedStore kStore, int kSums>
__device__ __forceinline__ void stage_turned(const TurnedSteps& steps, const TurnedColumn<T, kStore> (&columns)[2],
                                             const LightActivation& activation, const TurnedFinish& finish,
                                             float (&sums)[kSums]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    TurnedColumn<T, kStore> column = columns[half];
    if (!column.exists) continue;
    ptx::forget(column.from);  // else the tests of all tiles are made once, and kept in more registers than there are
    const float offset = column.offset;
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i) {
      float &even = sums[4 * i + 2 * half], &odd = sums[4 * i + 2 * half + 1];
      even += offset;
      odd += offset;
    }
    float none = offset;
    if (activation.is_there) {
      none = activation(as_floats<T>(as_word<T>(none, 0.0F)).x);
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        float &even = sums[4 * i + 2 * half], &odd = sums[4 * i + 2 * half + 1];
        const float2 rounded = as_floats<T>(as_word<T>(even, odd));
        even = activation(rounded.x);
        odd = activation(rounded.y);
      }
    }
    const std::uint32_t nothing = as_word<T>(none, none);
#pragma unroll
    for (int i = 0; i < kSums / 4; ++i)
      column.template put<kLate>(i, sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1], steps.window, nothing, finish);
  }
}

template <class T, int kDepths, int kN, TurnedStore kStore, TurnedLate kLate>
__device__ __forceinline__ void consume_turned(const TurnedSteps& steps, const TurnedLayout& layout, const TurnedMaps& maps,
                                               const Epilogue& epilogue, std::int64_t length, const uint4* __restrict__ packed,
                                               const T* __restrict__ bias, T* __restrict__ out, const T* staged,
                                               std::uint32_t staging, int consumer, int thread) {
  std::uint32_t weights[kDepths][4];
#pragma unroll
  for (int i = 0; i < kDepths; ++i) {
    const uint4 four = i < steps.depths ? packed[i * 128 + thread] : make_uint4(0, 0, 0, 0);
    weights[i][0] = four.x, weights[i][1] = four.y, weights[i][2] = four.z, weights[i][3] = four.w;
  }
  const int lane = thread % 32;
  const TurnedColumn<T, kStore> columns[2] = {{steps, staging, bias, turned_column(steps.columns, thread, 0), lane},
                                              {steps, staging, bias, turned_column(steps.columns, thread, 1), lane}};
  // With a residual, too, but not in a derivative's stead.
  const LightActivation activation(epilogue, kLate != TurnedLate::derivative && epilogue.activation != Activation::none);
  const TurnedFinish finish(epilogue);
  Ring ring;
  ring.skip(consumer, steps.stages);
  std::uint32_t parity = 0;  // of the barrier of what lies beside outputs
  for (std::uint32_t index = blockIdx.x + static_cast<std::uint32_t>(consumer) * gridDim.x; index < steps.tiles;
       index += kTurnedConsumers * gridDim.x) {
    float sums[kN / 2];
    ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
    multiply_turned<T, kDepths, kN>(steps, layout.tiles + static_cast<std::uint32_t>(ring.stage * steps.tile_bytes),
                                    layout.zeros, weights, sums);
    const TurnedTile at(steps, index);
    const std::int64_t first = steps.out_first + static_cast<std::int64_t>(at.tile) * steps.window;
    const bool inside = is_inside(steps, length, first) && (!epilogue.is_late() || maps.has_beside);
    const bool is_late = inside && maps.has_beside;
    const TurnedBoxes boxes{steps, maps, static_cast<int>(first), static_cast<int>(at.n), staging};
    if (thread == 0) {
      ptx::bulk_wait_read();  // the staging is free again
      if (is_late) boxes.load(layout.beside_full(consumer));
    }
    ptx::named_barrier(1 + consumer, 128);
    ptx::wgmma_wait<0>();
    ptx::settle(sums);
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(ring.stage));
    ring.skip(kTurnedConsumers, steps.stages);
    if (is_late) {
      ptx::mbarrier_wait(layout.beside_full(consumer), parity);
      parity ^= 1;
      stage_turned<kLate>(steps, columns, activation, finish, sums);
    } else {
      stage_turned<TurnedLate::nothing>(steps, columns, activation, finish, sums);
    }
    ptx::fence_async_shared();
    ptx::named_barrier(1 + consumer, 128);
    if (!inside)
      store_turned_ends(steps, epilogue, length, first, static_cast<std::int64_t>(at.n) * steps.columns, staged, out, thread);
    else if (thread == 0)
      boxes.store();
  }
  if (thread == 0) ptx::bulk_wait();
}

/// kLate: what lies beside outputs, if anything does.
template <class T, int kDepths, int kN, TurnedStore kStore, TurnedLate kLate>
__global__ void __launch_bounds__(kTurnedThreads, 1)
    turned_kernel(const __grid_constant__ TurnedSteps steps, const __grid_constant__ TurnedMaps maps,
                  const __grid_constant__ Epilogue epilogue, std::int64_t source_length, std::int64_t out_length,
                  int unit_place, const uint4* __restrict__ packed, const T* __restrict__ bias, T* __restrict__ out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char turned_memory[];
  const std::uint32_t base = (ptx::shared_address(turned_memory) + 127) & ~127U;
  unsigned char* memory = turned_memory + (base - ptx::shared_address(turned_memory));
  // Through a shuffle the compiler knows them to be the same in a warp; else it serialises the wgmmas.
  const int group = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 128, 0);
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const TurnedLayout layout(base, steps);
  if (threadIdx.x < 32) reinterpret_cast<std::uint32_t*>(memory + (layout.zeros - base))[lane] = 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < steps.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 4);
      ptx::mbarrier_init(layout.empty(stage), 4);
    }
    for (int stage = 0; stage < steps.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 1);
      ptx::mbarrier_init(layout.raw_empty(stage), 4);
    }
    for (int consumer = 0; consumer < kTurnedConsumers; ++consumer) ptx::mbarrier_init(layout.beside_full(consumer), 1);
    ptx::fence_mbarrier_init();
  }
  ptx::fence_async_shared();
  __syncthreads();
  if (group == kTurnedConsumers) {
    ptx::registers_down<56>();
    turn_tiles(steps, layout, maps, source_length, unit_place, warp, lane);
    return;
  }
  ptx::registers_up<224>();
  const std::uint32_t staging = layout.staging + static_cast<std::uint32_t>(group * steps.staging_bytes);
  consume_turned<T, kDepths, kN, kStore, kLate>(steps, layout, maps, epilogue, out_length, packed, bias, out,
                                                reinterpret_cast<const T*>(memory + (staging - base)), staging, group,
                                                warp * 32 + lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
