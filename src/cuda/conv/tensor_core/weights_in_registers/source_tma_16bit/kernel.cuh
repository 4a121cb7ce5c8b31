#pragma once
// 16-bit forward and dgrad with few columns and few products on wgmma (sm_90a): weights in registers, tensors read and written
// in boxes, and a source that is transposed by matrix loads. The mathematics are in cuda/conv/tap_gemm.hpp.
//
// gemm_m = 64 columns, gemm_n = 256 (208) positions, gemm_k = (tap, row), all in one stage. A block has three warpgroups: one
// copies and transposes the source; two multiply and store, one tile each in turn.

#include <cstdint>
#include <type_traits>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/layout.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/producer.cuh"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/store.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kTma16Threads = (kTma16Consumers + 1) * 128;

template <class T>
inline constexpr ptx::Tensor kTma16Type = std::is_same_v<T, __half> ? ptx::Tensor::f16 : ptx::Tensor::bf16;

/// The column of sums d[0], d[1] (half 0) and d[2], d[3] of every four; with few columns each warp has some.
__device__ __forceinline__ int tma16_column(int columns, int thread, int half) {
  const int warp = thread / 32, row = thread % 32 / 4;
  if (columns <= kTma16Columns / 2) return half == 0 ? warp * 8 + row : kTma16Columns;
  return warp * 16 + row + 8 * half;
}

/// packed[depth][thread of a consumer]: the four registers of its operand.
template <class T>
__global__ void __launch_bounds__(128)
    source_tma_16bit_pack_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ ConvProblem problem, int classes,
                                 bool is_forward, const T* __restrict__ w, uint4* __restrict__ packed) {
  const int depth = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int pairs = static_cast<int>(gemm.rows) / 16, window = depth / pairs, pair = depth % pairs;
  const std::int64_t k = is_forward ? gemm.taps - 1 - window : window;
  T values[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // Register i/2: row and row + 8 of gemm_m, then both eight rows of gemm_k later.
    const int block = 2 * pair + i / 4, column = tma16_column(static_cast<int>(gemm.columns), thread, i / 2 % 2);
    const std::int64_t row = (block / classes * 8 + lane % 4 * 2 + i % 2) * classes + block % classes;
    const std::int64_t ci = is_forward ? row : column, co = is_forward ? column : row;
    values[i] = column < gemm.columns ? w[(ci * problem.C_out + co) * problem.K + k] : T(0.0F);
  }
  packed[depth * 128 + thread] = *reinterpret_cast<const uint4*>(values);
}

template <class T, int kDepths, int kN>
__device__ __forceinline__ void multiply_tma16(const Tma16Tiling& tiling, std::uint32_t tile, std::uint32_t zeros,
                                               const std::uint32_t (&weights)[kDepths][4], float (&sums)[kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<kTma16Type<T>, kN, false>;
  const std::uint64_t source = ptx::operand_descriptor(tile, static_cast<std::uint32_t>(tiling.slots) * 16);
  const std::uint64_t nothing = (zeros >> 4) & 0x3fff;  // the same 128 bytes again and again
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kDepths; ++i)
    Mma::multiply(sums, weights[i], i < tiling.depths ? source + tiling.product[i] : nothing, i > 0);
  ptx::wgmma_commit();
}

/// Writes a consumer's finished sums into its staging.
template <Tma16Aux kAux, class T, Tma16Store kStore, int kSums>
__device__ __forceinline__ void stage_tma16(const Tma16Tiling& tiling, const Tma16Column<T, kStore> (&columns)[2],
                                            const LightActivation& activation, const Tma16Finish& finish,
                                            float (&sums)[kSums]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Tma16Column<T, kStore> column = columns[half];
    if (!column.exists) continue;
    ptx::opaque(column.from);  // else the tests of all tiles are hoisted and kept in more registers than there are
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
      column.template put<kAux>(i, sums[4 * i + 2 * half], sums[4 * i + 2 * half + 1], tiling.window, nothing, finish);
  }
}

template <class T, int kDepths, int kN, Tma16Store kStore, Tma16Aux kAux>
__device__ __forceinline__ void consume_tma16(const Tma16Tiling& tiling, const Tma16Layout& layout, const Tma16Maps& maps,
                                              const Epilogue& epilogue, std::int64_t length, const uint4* __restrict__ packed,
                                              const T* __restrict__ bias, T* __restrict__ out, const T* staged,
                                              std::uint32_t staging, int consumer, int thread) {
  std::uint32_t weights[kDepths][4];
#pragma unroll
  for (int i = 0; i < kDepths; ++i) {
    const uint4 four = i < tiling.depths ? packed[i * 128 + thread] : make_uint4(0, 0, 0, 0);
    weights[i][0] = four.x, weights[i][1] = four.y, weights[i][2] = four.z, weights[i][3] = four.w;
  }
  const int lane = thread % 32;
  const Tma16Column<T, kStore> columns[2] = {{tiling, staging, bias, tma16_column(tiling.columns, thread, 0), lane},
                                             {tiling, staging, bias, tma16_column(tiling.columns, thread, 1), lane}};
  // With a residual too, but not in place of a derivative.
  const LightActivation activation(epilogue, kAux != Tma16Aux::derivative && epilogue.activation != Activation::none);
  const Tma16Finish finish(epilogue);
  Ring ring;
  ring.skip(consumer, tiling.stages);
  std::uint32_t parity = 0;  // of the barrier for the aux operand
  for (std::uint32_t index = blockIdx.x + static_cast<std::uint32_t>(consumer) * gridDim.x; index < tiling.tiles;
       index += kTma16Consumers * gridDim.x) {
    float sums[kN / 2];
    ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
    multiply_tma16<T, kDepths, kN>(tiling, layout.tiles + static_cast<std::uint32_t>(ring.stage * tiling.tile_bytes),
                                   layout.zeros, weights, sums);
    const Tma16Tile at(tiling, index);
    const std::int64_t first = tiling.out_first + static_cast<std::int64_t>(at.tile) * tiling.window;
    const bool inside = is_inside(tiling, length, first) && (!epilogue.has_aux() || maps.has_aux);
    const bool has_aux = inside && maps.has_aux;
    const Tma16Boxes boxes{tiling, maps, static_cast<int>(first), static_cast<int>(at.n), staging};
    if (thread == 0) {
      ptx::bulk_wait_read();  // the staging is free again
      if (has_aux) boxes.load(layout.aux_full(consumer));
    }
    ptx::named_barrier(1 + consumer, 128);
    ptx::wgmma_wait<0>();
    ptx::fence_registers(sums);
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(ring.stage));
    ring.skip(kTma16Consumers, tiling.stages);
    if (has_aux) {
      ptx::mbarrier_wait(layout.aux_full(consumer), parity);
      parity ^= 1;
      stage_tma16<kAux>(tiling, columns, activation, finish, sums);
    } else {
      stage_tma16<Tma16Aux::nothing>(tiling, columns, activation, finish, sums);
    }
    ptx::fence_async_shared();
    ptx::named_barrier(1 + consumer, 128);
    if (!inside)
      store_tma16_ends(tiling, epilogue, length, first, static_cast<std::int64_t>(at.n) * tiling.columns, staged, out, thread);
    else if (thread == 0)
      boxes.store();
  }
  if (thread == 0) ptx::bulk_wait();
}

/// kAux: the aux operand, if any.
template <class T, int kDepths, int kN, Tma16Store kStore, Tma16Aux kAux>
__global__ void __launch_bounds__(kTma16Threads, 1)
    source_tma_16bit_kernel(const __grid_constant__ Tma16Tiling tiling, const __grid_constant__ Tma16Maps maps,
                            const __grid_constant__ Epilogue epilogue, std::int64_t source_length, std::int64_t out_length,
                            int unit_place, const uint4* __restrict__ packed, const T* __restrict__ bias, T* __restrict__ out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char source_tma_16bit_memory[];
  const std::uint32_t base = (ptx::shared_address(source_tma_16bit_memory) + 127) & ~127U;
  unsigned char* memory = source_tma_16bit_memory + (base - ptx::shared_address(source_tma_16bit_memory));
  const int group = group_of_block(), warp = warp_of_group(), lane = lane_of_warp();
  const Tma16Layout layout(base, tiling);
  if (threadIdx.x < 32) reinterpret_cast<std::uint32_t*>(memory + (layout.zeros - base))[lane] = 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 4);
      ptx::mbarrier_init(layout.empty(stage), 4);
    }
    for (int stage = 0; stage < tiling.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 1);
      ptx::mbarrier_init(layout.raw_empty(stage), 4);
    }
    for (int consumer = 0; consumer < kTma16Consumers; ++consumer) ptx::mbarrier_init(layout.aux_full(consumer), 1);
    ptx::fence_mbarrier_init();
  }
  ptx::fence_async_shared();
  __syncthreads();
  if (group == kTma16Consumers) {
    ptx::registers_down<56>();
    turn_tiles(tiling, layout, maps, source_length, unit_place, warp, lane);
    return;
  }
  ptx::registers_up<224>();
  const std::uint32_t staging = layout.staging + static_cast<std::uint32_t>(group * tiling.staging_bytes);
  consume_tma16<T, kDepths, kN, kStore, kAux>(tiling, layout, maps, epilogue, out_length, packed, bias, out,
                                              reinterpret_cast<const T*>(memory + (staging - base)), staging, group,
                                              warp * 32 + lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
