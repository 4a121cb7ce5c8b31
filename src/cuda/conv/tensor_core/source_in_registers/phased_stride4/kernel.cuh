#pragma once
// Forward of 16-bit types with stride 4 or 8 on wgmma (sm_90a), the source in registers in its original layout. The mathematics
// are in cuda/conv/tap_gemm.hpp. Read source_in_registers/phased_stride2/kernel.cuh first, the same with resident weights.
//
// gemm_m = units of S neighbouring outputs; gemm_n = (class, channel); gemm_k = (neighbour, row). Output S*u + r reads elements
// u + s of its rows. The farthest ahead and behind belong to some classes only, so their products have fewer columns, and
// nothing is multiplied in vain. A thread holds two neighbouring units of all classes: its sums are 2*S neighbouring outputs,
// stored from registers in 16-byte vectors. There is no conversion pass and no staging: each tensor is moved once.
//
// Tiles of 128 units x 256 columns; two warpgroups multiply 64 units each. One thread streams weights and boxes of the source
// through a ring of stages.

#include <cstdint>
#include <utility>

#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/scaled_finish.cuh"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"
#include "cuda/conv/tensor_core/source_in_registers/phased_stride4/producer.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kPhased4Threads = (kPhased4Groups + 1) * 128;
inline constexpr int kPhased4Sums = kPhased4Columns / 2;  // per thread

/// One product, for the columns of chunk kIndex, if its neighbour belongs to the half. `weights`: of all 16 rows, a descriptor
/// without a pitch.
template <class Operand, int kPattern, class Half, int kIndex>
__device__ __forceinline__ void multiply_chunk(const Phased4Words<Half::kShifts>& words, std::uint64_t weights,
                                               float (&sums)[kPhased4Sums]) {
  constexpr Phased4Chunks kChunks = unit_chunks(kPhased4Patterns[kPattern]);
  constexpr Phased4Chunk kOwn = kChunks.of[kIndex];
  constexpr int kSums = kOwn.columns / 2, kAt = kOwn.shift - Half::kFirst;
  if constexpr (kAt >= 0 && kAt < Half::kShifts) {
    const std::uint64_t own = (weights + static_cast<std::uint32_t>(kChunks.columns_before(kIndex) * 2)) |
                              static_cast<std::uint64_t>(kOwn.columns) << 16;
    ptx::WgmmaFromRegisters<Operand::kType, kOwn.columns, false>::multiply(
        reinterpret_cast<float(&)[kSums]>(sums[kOwn.column / 2]), words.v[kAt], own, true);
  }
}

/// The products of a half, as one group.
template <class Operand, int kPattern, class Half>
__device__ __forceinline__ void multiply_units(const Phased4Words<Half::kShifts>& words, std::uint64_t weights,
                                               float (&sums)[kPhased4Sums]) {
  ptx::wgmma_fence();
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (multiply_chunk<Operand, kPattern, Half, kIndex>(words, weights, sums), ...);
  }
  (std::make_integer_sequence<int, unit_chunks(kPhased4Patterns[kPattern]).count>());
  ptx::wgmma_commit();
}

/// What the threads of a consumer share, and where a thread's sums belong: units 2*slot and the next of the tile.
template <class T, int kStride>
struct Phased4Store {
  static constexpr int kChannels = kPhased4Columns / kStride, kVectors = 2 * kStride / 8;
  const TapGemm& gemm;
  const Phased4Tiling& tiling;
  ScaledFinish finish;
  T* out;
  int slot, lane;

  /// sums[kChannels / 2 * r + 4*j + 2*h + b]: class r of unit h, channel 8*j + 2*(lane%4) + b. bias: of channels lane and lane
  /// + 32.
  __device__ __forceinline__ void store(const Phased4Place& place, float (&sums)[kPhased4Sums], const float (&bias)[2]) const {
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const int own = 8 * j + lane % 4 * 2 + b;
        const float offset = __shfl_sync(0xffffffffU, bias[8 * j / 32], own % 32);
#pragma unroll
        for (int r = 0; r < kStride; ++r) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float& sum = sums[kChannels / 2 * r + 4 * j + 2 * h + b];
            sum = finish.linear(sum, offset);
          }
        }
      }
    }
    finish.template activate<T>(sums);
    auto left = static_cast<int>(gemm.out_channels - place.first_channel) - lane % 4 * 2;
    const bool odd = slot % 2 != 0;
    // With eight outputs per unit two lanes exchange one vector, so that neighbouring lanes write neighbouring vectors.
    const std::int64_t unit = place.unit + 2 * slot - (kStride == 8 && odd ? 1 : 0);
    if (place.n >= gemm.N) return;
    T* to = out + ((place.n * gemm.G + place.g) * gemm.out_channels + place.first_channel + lane % 4 * 2) * gemm.out_length +
            unit * kStride;
    const bool exists[2] = {unit < tiling.units, unit + 2 < tiling.units};
#pragma unroll
    for (int j = 0; j < kChannels / 8; ++j, left -= 8, to += 6 * gemm.out_length) {
#pragma unroll
      for (int b = 0; b < 2; ++b, to += gemm.out_length) {
        uint4 vectors[kVectors];
        gather(sums, j, b, vectors);
        if constexpr (kStride == 8) exchange(odd, vectors);
        if (b >= left) continue;
#pragma unroll
        for (int i = 0; i < kVectors; ++i)
          if (exists[i]) __stcs(reinterpret_cast<uint4*>(to + 16 * i), vectors[i]);
      }
    }
  }
  /// The outputs of both units in order.
  __device__ __forceinline__ static void gather(const float (&sums)[kPhased4Sums], int j, int b, uint4 (&vectors)[kVectors]) {
    T outputs[2 * kStride];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int r = 0; r < kStride; ++r) outputs[h * kStride + r] = static_cast<T>(sums[kChannels / 2 * r + 4 * j + 2 * h + b]);
    }
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const auto word = [&](int at) {
        const T two[2] = {outputs[8 * i + 2 * at], outputs[8 * i + 2 * at + 1]};
        return static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&two[0])) |
               static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&two[1])) << 16;
      };
      vectors[i] = make_uint4(word(0), word(1), word(2), word(3));
    }
  }
  __device__ __forceinline__ static void exchange(bool odd, uint4 (&vectors)[kVectors]) {
    const uint4 send = odd ? vectors[0] : vectors[kVectors - 1];
    const uint4 got = make_uint4(__shfl_xor_sync(0xffffffffU, send.x, 4), __shfl_xor_sync(0xffffffffU, send.y, 4),
                                 __shfl_xor_sync(0xffffffffU, send.z, 4), __shfl_xor_sync(0xffffffffU, send.w, 4));
    (odd ? vectors[0] : vectors[kVectors - 1]) = got;
  }
};

/// Recomputes all outputs of a warp's 16 units one after another, if weights have Inf or NaN, which zeros outside the rows
/// would turn into NaN. Not inlined: it is rarely called, and must not take registers from its caller.
template <class T>
__device__ __noinline__ void recompute_units(const TapGemm& gemm, const Phased4Tiling& tiling, const Epilogue& epilogue,
                                             const ExactSource<T>& exact, const T* __restrict__ bias, T* __restrict__ out,
                                             Phased4Place place, int first) {
  if (place.n >= gemm.N) return;
  const std::int64_t S = gemm.out_stride, t0 = (place.unit + first) * S;
  const std::int64_t end = min(gemm.out_length, t0 + 16 * S);
  const std::int64_t channels = min(gemm.out_channels, place.first_channel + tiling.channels);
#pragma unroll 1
  for (std::int64_t channel = place.first_channel; channel < channels; ++channel) {
#pragma unroll 1
    for (std::int64_t t = t0; t < end; ++t) recompute_unit(gemm, epilogue, exact, bias, out, place, channel, t, 0);
  }
}

template <class Operand, int kStride, int kPattern>
__device__ __forceinline__ void consume_units(const TapGemm& gemm, const Phased4Tiling& tiling, const Epilogue& epilogue,
                                              const Phased4Layout<kPattern>& layout, const unsigned char* memory,
                                              const ExactSource<typename Operand::Source>& exact,
                                              const typename Operand::Source* bias, typename Operand::Source* out,
                                              const OperandHeader* weight_header, int group, int warp, int lane) {
  using T = typename Operand::Source;
  using Layout = Phased4Layout<kPattern>;
  using First = Phased4Half<kPattern, 0>;
  using Second = Phased4Half<kPattern, 1>;
  const int first = group * (kPhased4Positions / kPhased4Groups) + warp * 16;
  const unsigned char* own = memory + (layout.source(0) - layout.stages) + lane % 4 * (kPhased4Width * 2) +
                             (first + lane / 4 * 2 + tiling.lead - 1) * 2;
  const bool has_suspects = weight_header->suspect_count != 0;
  Ring at, done;
#pragma unroll 1
  for (Phased4Walk walk; walk.more(tiling); walk.advance()) {
    float sums[kPhased4Sums] = {};
    float biases[2];
    {
      const Phased4Place place = walk.place(tiling);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::int64_t channel = place.first_channel + 32 * i + lane;
        biases[i] = bias != nullptr && channel < gemm.out_channels
                        ? static_cast<float>(bias[place.g * gemm.out_channels + channel])
                        : 0.0F;
      }
    }
    ptx::fence_registers(sums);
    Phased4Words<First::kShifts> even{};
    Phased4Words<Second::kShifts> odd{};
    // One group of products is outstanding while the operands of the next are read.
#pragma unroll 1
    for (int left = tiling.count / Layout::kDepths, all = left; left > 0; --left) {
      const unsigned char* source = own + static_cast<std::uint32_t>(at.stage) * Layout::kStageBytes;
      const std::uint64_t weights = ptx::operand_descriptor(layout.weights(at.stage), 0);
      ptx::mbarrier_wait(layout.full(at.stage), at.parity);
      typename Phased4Reader<First>::Raw raw;
      Phased4Reader<First>::load(source, raw);
      ptx::wgmma_wait<1>();
      even.keep();
      Phased4Reader<First>::pair(raw, even);
      multiply_units<Operand, kPattern, First>(even, weights, sums);
      typename Phased4Reader<Second>::Raw more;
      Phased4Reader<Second>::load(source + Second::kDepth * kPhased4Rows * kPhased4Width * 2, more);
      ptx::wgmma_wait<1>();
      odd.keep();
      if (left != all) {
        if (lane == 0) ptx::mbarrier_arrive(layout.empty(done.stage));
        done.advance(tiling.stages);
      }
      Phased4Reader<Second>::pair(more, odd);
      multiply_units<Operand, kPattern, Second>(odd, weights + Second::kDepth * (Layout::kDepthBytes / 16), sums);
      at.advance(tiling.stages);
    }
    ptx::wgmma_wait<0>();
    even.keep();
    odd.keep();
    if (lane == 0) ptx::mbarrier_arrive(layout.empty(done.stage));
    done.advance(tiling.stages);
    ptx::fence_registers(sums);
    const Phased4Place place = walk.place(tiling);
    if (has_suspects) {
      recompute_units(gemm, tiling, epilogue, exact, bias, out, place, first);
    } else {
      // Computed here, so that no register holds it from tile to tile.
      int own_lane = lane, own_first = first;
      ptx::opaque(own_lane);
      ptx::opaque(own_first);
      const Phased4Store<T, kStride> store{gemm,    tiling, ScaledFinish(0, epilogue), out, own_first / 2 + own_lane / 4,
                                           own_lane};
      store.store(place, sums, biases);
    }
  }
}

/// Launched after the kernel before. Pointers are not __restrict__: the compiler could move loads before the wait.
template <class Operand, int kStride, int kPattern>
__global__ void __launch_bounds__(kPhased4Threads, 1)
    phased_stride4_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Phased4Tiling tiling,
                          const __grid_constant__ Epilogue epilogue, const __grid_constant__ CUtensorMap map,
                          const typename Operand::Source* bias, typename Operand::Source* out,
                          const OperandHeader* weight_header,
                          const __grid_constant__ ExactSource<typename Operand::Source> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  const int group = group_of_block(), warp = warp_of_group(), lane = lane_of_warp();
  const Phased4Layout<kPattern> layout(base, tiling);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 1);
      ptx::mbarrier_init(layout.empty(stage), kPhased4Groups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  wait_for_grid_before();
  if (group == kPhased4Groups) {
    ptx::registers_down<40>();
    if (warp == 0 && lane == 0)
      copy_units<kPattern>(gemm, tiling, layout, &map, reinterpret_cast<const unsigned char*>(weight_header + 1));
  } else {
    ptx::registers_up<232>();
    consume_units<Operand, kStride, kPattern>(gemm, tiling, epilogue, layout, raw + (base - ptx::shared_address(raw)), exact,
                                              bias, out, weight_header, group, warp, lane);
  }
#endif
}

/// The packed weights in the order of Phased4Piece.
template <class Operand>
__global__ void __launch_bounds__(kLargestThreads)
    phased_stride4_pack_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ Phased4Tiling tiling,
                               const __grid_constant__ Phased4Chunks chunks, const typename Operand::Source* __restrict__ w,
                               OperandHeader* __restrict__ header, uint4* __restrict__ packed) {
  using T = typename Operand::Source;
  const std::int64_t index = blockIdx.x * static_cast<std::int64_t>(kLargestThreads) + threadIdx.x;
  if (index >= tiling.packed_bytes / 16) return;
  const std::int64_t of_depth = tiling.packed_bytes / 16 / tiling.column_tiles / tiling.count;
  const Phased4Piece<T> piece(problem, tiling, chunks, of_depth, index, w);
  uint4 parts[Operand::kParts];
  const std::uint32_t suspect_count = make_operand<Operand>(piece.values, 1.0F, SplitRange(0), parts);
  packed[index] = parts[0];
  if (suspect_count != 0) add_suspect_count(&header->suspect_count, suspect_count);
}

}  // namespace polyphase::cuda::tensor_core
