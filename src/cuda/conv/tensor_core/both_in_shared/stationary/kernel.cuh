#pragma once
// Forward and dgrad with few columns on wgmma (sm_90a): the weights of 64 columns stay in shared memory. The mathematics are in
// cuda/conv/tap_gemm.hpp.
//
// gemm_m = 64 columns, gemm_n = positions, gemm_k = (row, plane, tap). A block is two pairs of warpgroups. Each pair has tiles
// of its own (64 x 128 for two parts, 64 x 256 for one): a producer loads rows by bulk copies and converts them, a consumer
// multiplies and stores. The pairs run independently, so that the stores of one overlap the products of the other. Sums of two
// parts are not accumulated in f32 in between, because reductions are short here.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/both_in_shared/stationary/aux_rows.cuh"
#include "cuda/conv/tensor_core/both_in_shared/stationary/layout.cuh"
#include "cuda/conv/tensor_core/both_in_shared/stationary/producer.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/recompute/finish_tiles.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kStationaryThreads = kPairs * 256;

/// gemm_n of one wgmma. With 512 threads ptxas compiles no wider one.
inline constexpr int kStationaryN = 128;

/// The products of one step, issued so that one group is always outstanding after the next. Two parts: first += high*high,
/// second += high*low + low*high. One part: first and second are the two halves of the positions, or first is all. `release` is
/// a barrier, or 0 for none; it is arrived at when only the first group is outstanding.
template <class Operand, int kSecond>
__device__ __forceinline__ void multiply_stationary(const StationaryTiling& tiling, std::uint32_t source, std::uint32_t weights,
                                                    std::uint32_t release, float (&first)[kStationaryN / 2],
                                                    float (&second)[kSecond]) {
  using Mma = ptx::Wgmma<Operand::kType, kStationaryN>;
  const auto source_part = static_cast<std::uint32_t>(tiling.tile.items);  // in 16 bytes, as in the address of a descriptor
  const auto weight_part = static_cast<std::uint32_t>(tiling.rows / Operand::kVector) * kStationaryColumns;
  const std::uint64_t a0 = ptx::operand_descriptor(weights, kStationaryColumns * 16);
  const std::uint64_t b0 = ptx::operand_descriptor(source, static_cast<std::uint32_t>(tiling.tile.window) * 16);
  Product product = tiling.products[0];
#pragma unroll 1
  for (int i = 1; i <= tiling.product_count; ++i) {
    const std::uint64_t a = a0 + product.weights, b = b0 + product.source;
    ptx::wgmma_fence();
    if constexpr (Operand::kParts == 2) {
      Mma::multiply(second, a + weight_part, b, true);
      Mma::multiply(second, a, b + source_part, true);
      Mma::multiply(first, a, b, true);
    } else {
      Mma::multiply(first, a, b, true);
      if constexpr (kSecond > 1) Mma::multiply(second, a, b + kStationaryN, true);
    }
    ptx::wgmma_commit();
    product = tiling.products[i];
    ptx::wgmma_wait<1>();
    if (release != 0) ptx::mbarrier_arrive(release);
    release = 0;
  }
}

/// Writes half of a warp's sums (rows lane/4 of its eight columns), scaled, with bias and `function` applied, to its staging.
template <class Operand, int kN, int kSecond, class Function>
__device__ __forceinline__ void stage_half(int half, int lane, float factor, float addend,
                                           const float (&first)[kStationaryN / 2], const float (&second)[kSecond],
                                           Staged<typename Operand::Source>* staging, const Function& function) {
  using T = typename Operand::Source;
  Staged<T>* to = staging + lane / 4 * (kN + 8) + 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < kN / 8; ++i) {
    const int at = i % (kStationaryN / 8) * 4 + 2 * half;
    const bool is_first = i < kStationaryN / 8;
    const float even = function(fmaf(is_first ? first[at] : second[at % kSecond], factor, addend));
    const float odd = function(fmaf(is_first ? first[at + 1] : second[(at + 1) % kSecond], factor, addend));
    if constexpr (sizeof(T) == 2) {
      const T pair[2] = {static_cast<T>(even), static_cast<T>(odd)};
      *reinterpret_cast<std::uint32_t*>(to + 8 * i) = *reinterpret_cast<const std::uint32_t*>(pair);
    } else {
      *reinterpret_cast<float2*>(to + 8 * i) = make_float2(even, odd);
    }
  }
}

/// stage_half() with a light activation if `activates`; numbers are rounded first, as they would be in a tensor.
template <class Operand, int kN, int kSecond>
__device__ __forceinline__ void stage_light(const Epilogue& epilogue, bool activates, int half, int lane, float factor,
                                            float addend, const float (&first)[kStationaryN / 2],
                                            const float (&second)[kSecond], Staged<typename Operand::Source>* staging) {
  using T = typename Operand::Source;
  const auto stage = [&](const auto& function) {
    stage_half<Operand, kN>(half, lane, factor, addend, first, second, staging, function);
  };
  if (!activates) return stage([](float value) { return value; });
  const auto slope = static_cast<float>(epilogue.slope);
  const bool is_leaky = epilogue.activation == Activation::leaky_relu;
  stage([slope, is_leaky](float value) {
    value = static_cast<float>(static_cast<T>(value));
    return value < 0.0F ? (is_leaky ? slope * value : 0.0F) : value;
  });
}

/// stage_half() with an aux operand that lies where the outputs will be staged; `finish` comes from with_finish().
template <class Operand, int kN, class Finish, int kSecond>
__device__ __forceinline__ void stage_aux(const Finish& finish, int half, int lane, float factor, float addend,
                                          const float (&first)[kStationaryN / 2], const float (&second)[kSecond],
                                          Staged<typename Operand::Source>* staging) {
  using T = typename Operand::Source;
  struct alignas(2 * sizeof(T)) Pair {
    T even, odd;
  };
  constexpr int kAtOnce = 4;  // a read of shared memory does not move before a write
  Pair* const to = reinterpret_cast<Pair*>(staging + lane / 4 * (kN + 8) + 2 * (lane % 4));
#pragma unroll
  for (int begin = 0; begin < kN / 8; begin += kAtOnce) {
    Pair aux[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) aux[j] = to[4 * (begin + j)];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j, at = i % (kStationaryN / 8) * 4 + 2 * half;
      const bool is_first = i < kStationaryN / 8;
      const float even = fmaf(is_first ? first[at] : second[at % kSecond], factor, addend);
      const float odd = fmaf(is_first ? first[at + 1] : second[(at + 1) % kSecond], factor, addend);
      to[4 * i] = {static_cast<T>(finish(even, static_cast<float>(aux[j].even))),
                   static_cast<T>(finish(odd, static_cast<float>(aux[j].odd)))};
    }
  }
}

/// Whether one of a warp's sums is suspect in a tile with this suspect count; `columns` of the 16 columns exist.
template <class Operand, int kSecond>
__device__ __forceinline__ bool is_suspect(SuspectCount suspect_count, std::int64_t columns,
                                           const float (&first)[kStationaryN / 2], const float (&second)[kSecond]) {
  const float least = least_right<Operand>(suspect_count);
  bool is = has_sum_below(least, columns, first);
  if constexpr (Operand::kParts == 1 && kSecond > 1) is = has_sum_below(least, columns, second) || is;
  return is || suspect_count >= kNeverSplit;
}

/// Starts to load a warp's aux operands of a tile: the first eight rows of the one at `aux` go to the staging buffer.
template <class Aux, class Residual, class T>
__device__ __forceinline__ void begin_aux(const TapGemm& gemm, const StationaryTiling& tiling, const Epilogue& epilogue,
                                          const TilePlace& place, std::int64_t aux, bool has_both, T* out, Staged<T>* staging,
                                          int warp, int lane) {
  const std::int64_t sample = (place.n * gemm.G + place.g) * gemm.out_channels, column = place.column + warp * 16;
  __syncwarp();  // the tile before has been read
  Aux(gemm, tiling, sample, column, place.position, aux, out).bring(staging, lane);
  Aux(gemm, tiling, sample, column + 8, place.position, aux, out).prefetch(lane);
  if (has_both) Residual(gemm, tiling, sample, column, place.position, epilogue.residual, out).prefetch(lane);
}

/// Sums times a power of two.
template <class Operand, int kSecond>
__device__ __forceinline__ void scale_sums(float factor, float (&first)[kStationaryN / 2], float (&second)[kSecond]) {
#pragma unroll
  for (float& sum : first) sum *= factor;
  if constexpr (Operand::kParts == 1) {
#pragma unroll
    for (float& sum : second) sum *= factor;
  }
}

/// kAux: outputs have a residual or go through a derivative, which is loaded into the staging buffer; stride 1.
template <class Operand, int kN, bool kAux>
__device__ __forceinline__ void consume_stationary(const TapGemm& gemm, const StationaryTiling& tiling,
                                                   const Epilogue& epilogue, const StationaryLayout& layout,
                                                   const WeightHeader* __restrict__ weight_header,
                                                   const typename Operand::Source* __restrict__ bias,
                                                   typename Operand::Source* __restrict__ out, const OperandHeader* header,
                                                   const ExactSource<>& exact, const unsigned char* pair_suspect_count,
                                                   SuspectTiles::Entry* suspect_tile_count,
                                                   Staged<typename Operand::Source>* staging, int pair, int warp, int lane) {
  using T = typename Operand::Source;
  constexpr int kPitch = kN + 8, kSecond = Operand::kParts * kN > kStationaryN ? kStationaryN / 2 : 1;
  static_assert(Operand::kParts * kN == kStationaryN || Operand::kParts * kN == 2 * kStationaryN);
  staging += warp * 8 * kPitch;
  if constexpr (Operand::kScaled) wait_for_grid_before();
  const SampleLook<Operand::kScaled> look(header);
  const int exponent = Operand::kScaled ? -look.exponent() - scale_exponent(weight_header->largest, kWeightTarget) : 0;
  const SuspectCount of_weights =
      Operand::kScaled ? weight_suspect_count(static_cast<Split>(weight_header->split), gemm.rows * gemm.planes * gemm.taps)
                       : 0;
  SuspectTiles suspect_tiles{suspect_tile_count + warp * SuspectTiles::kMost};
  // Exponents outside the range of float are applied in two steps.
  const bool at_once = exponent >= -126 && exponent <= 127;
  const float factor = power_of_two(at_once ? exponent : exponent - exponent / 2);
  // A derivative is loaded; a residual in addition is read afterwards. Operands of one part have no registers for that.
  const bool has_both = kAux && Operand::kParts == 2 && epilogue.has_both();
  ptx::mbarrier_wait(layout.weights_full, 0);
  if (look.is_mixed()) return;
  Ring ring;
  // Without ordering, pairs that share the tensor cores end up in step and store at the same time. So each pair waits to begin
  // a tile until the other has reached turn_step of its own.
  std::uint32_t turns = pair == 0 ? 1 : 0;
  Walk walk(tiling, pair);
  for (; walk.more(); walk.advance(), ++turns) {
    if (tiling.turn_step >= 0 && (pair == 1 || turns > 1)) ptx::mbarrier_wait(layout.turn(1 - pair), turns & 1);
    const std::int64_t aux = has_both ? epilogue.derivative : epilogue.residual + epilogue.derivative;
    using Aux = AuxRows<T, kN, kPitch, 8>;
    if constexpr (kAux)
      begin_aux<Aux, AuxRows<T, kN, kPitch, 16>, T>(gemm, tiling, epilogue, walk.place(tiling), aux, has_both, out, staging,
                                                    warp, lane);
    float first[kStationaryN / 2] = {}, second[kSecond] = {};
    ptx::fence_registers(first);
    ptx::fence_registers(second);
    std::uint32_t held = 0;
#pragma unroll 1
    for (int step = 0; step < tiling.count; ++step) {
      ptx::mbarrier_wait(layout.full(ring.stage), ring.parity);
      multiply_stationary<Operand>(tiling, layout.sources + static_cast<std::uint32_t>(ring.stage * tiling.source_bytes),
                                   layout.weights + static_cast<std::uint32_t>(step * tiling.weight_bytes), held, first,
                                   second);
      held = lane == 0 ? layout.empty(ring.stage) : 0;
      if (step == tiling.turn_step && lane == 0) ptx::mbarrier_arrive(layout.turn(pair));
      ring.advance(tiling.stages);
    }
    ptx::wgmma_wait<0>();
    SuspectCount suspect_count = 0;
    if constexpr (Operand::kScaled)
      suspect_count = suspect_count_of_tile(pair_suspect_count + ((ring.stage == 0 ? tiling.stages : ring.stage) - 1) * 16,
                                            of_weights, lane);
    if (held != 0) ptx::mbarrier_arrive(held);
    ptx::fence_registers(first);
    ptx::fence_registers(second);
    if constexpr (Operand::kParts == 2) {
#pragma unroll
      for (int i = 0; i < kStationaryN / 2; ++i) first[i] += second[i] * (1.0F / kLowScale);
    }
    const TilePlace place = walk.place(tiling);
    // Suspect tiles are stored without the epilogue, so that recompute can check the sums, and are finished afterwards.
    bool finishes = true;
    if constexpr (Operand::kScaled) {
      finishes = suspect_tiles.count < SuspectTiles::kMost;
      if (suspect_count != 0) [[unlikely]] {
        if (is_suspect<Operand>(suspect_count, gemm.columns - place.column - warp * 16, first, second)) {
          suspect_tiles.add(walk.above, suspect_count);
          finishes = false;
        }
      }
    }
    if (!at_once) [[unlikely]]
      scale_sums<Operand>(power_of_two(exponent / 2), first, second);
    const bool activates = !kAux && finishes && epilogue.activation != Activation::none;
    const std::int64_t first_bias = place.g * gemm.out_channels;
    const std::int64_t row_of_sample = place.n * gemm.G * gemm.out_channels + first_bias;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t column = place.column + warp * 16 + half * 8;
      const std::uint32_t own = static_cast<std::uint32_t>(column) + static_cast<std::uint32_t>(lane) / 4;
      float offset = 0;
      if (bias != nullptr && own < gemm.columns) offset = static_cast<float>(bias[first_bias + tiling.by_classes.divide(own)]);
      __syncwarp();
      if constexpr (kAux) {
        if (half == 1) Aux(gemm, tiling, row_of_sample, column, place.position, aux, out).bring(staging, lane);
        ptx::copy_wait<0>();
        __syncwarp();
      }
      if (kAux && finishes)
        with_finish<T, FinishPart::all>(epilogue, [&](const auto& finish) {  // if there are both, the derivative
          stage_aux<Operand, kN>(finish, half, lane, factor, offset, first, second, staging);
        });
      else
        stage_light<Operand, kN>(epilogue, activates, half, lane, factor, offset, first, second, staging);
      __syncwarp();
      if (has_both && finishes) {
        Aux(gemm, tiling, row_of_sample, column, place.position, epilogue.residual, out)
            .add(static_cast<float>(epilogue.scale), staging, lane);
        __syncwarp();
      }
      if constexpr (kAux)
        store_unit_stride<T, kN, kPitch, 8>(gemm, tiling, row_of_sample, column, place.position, staging, lane, out);
      else
        store_rows<T, kN, kPitch, 8, true>(gemm, tiling, row_of_sample, column, place.position, bias, first_bias, epilogue,
                                           staging, lane, out);
    }
  }
  if constexpr (Operand::kScaled) {
    if (suspect_tiles.count != 0) {
      recompute_tiles<Operand>(gemm, tiling, exact, bias, out, walk, suspect_tiles, exponent, warp * 16, 16, tiling.positions);
      if (epilogue.is_needed())
        finish_tiles<kAux>(gemm, tiling, epilogue, out, walk, suspect_tiles, warp * 16, 16, tiling.positions);
    }
  }
}

template <class Operand, bool kPaired, int kN, bool kAux>
__global__ void __launch_bounds__(kStationaryThreads, 1)
    stationary_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ StationaryTiling tiling,
                      const __grid_constant__ Epilogue epilogue, const typename Operand::Source* __restrict__ source,
                      const unsigned char* __restrict__ packed, const typename Operand::Source* __restrict__ bias,
                      typename Operand::Source* __restrict__ out, const OperandHeader* header,
                      const __grid_constant__ ExactSource<> exact) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Operand::Source;
  extern __shared__ __align__(16) unsigned char raw[];
  const std::uint32_t base = (ptx::shared_address(raw) + 127) & ~127U;
  unsigned char* memory = raw + (base - ptx::shared_address(raw));
  const int group = group_of_block(), pair = group % kPairs, warp = warp_of_group(), lane = lane_of_warp();
  const StationaryLayout layout(base, tiling, sizeof(Staged<T>), pair);
  if (group < kPairs && warp == 0 && lane == 0) {
    for (int stage = 0; stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), 128);  // each writer arrives for itself
      ptx::mbarrier_init(layout.empty(stage), 4);
    }
    for (int stage = 0; stage < tiling.raw_stages; ++stage) {
      ptx::mbarrier_init(layout.raw_full(stage), 4);
      ptx::mbarrier_init(layout.raw_empty(stage), 128);  // each reader arrives for itself
    }
    ptx::mbarrier_init(layout.turn(pair), 4);
    if (pair == 0) ptx::mbarrier_init(layout.weights_full, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (group < kPairs) {
    ptx::registers_down<88>();
    if (threadIdx.x == 0) {
      const auto total = static_cast<std::uint32_t>(tiling.count * tiling.weight_bytes);
      const unsigned char* from = packed + kWeightHeaderBytes + static_cast<std::int64_t>(Walk(tiling, 0).tile) * total;
      copy_weights(from, total, layout.weights, layout.weights_full);
    }
    produce_stationary<Operand, kPaired>(
        gemm, tiling, layout, memory + (layout.sources - base), memory + (layout.raw - base), source, header,
        reinterpret_cast<std::uint32_t*>(memory + (layout.suspect_count(0) - base)), pair, warp, lane);
    return;
  }
  ptx::registers_up<168>();
  consume_stationary<Operand, kN, kAux>(gemm, tiling, epilogue, layout, reinterpret_cast<const WeightHeader*>(packed), bias,
                                        out, header, exact, memory + (layout.suspect_count(0) - base),
                                        reinterpret_cast<SuspectTiles::Entry*>(memory + (layout.suspect_tiles - base)),
                                        reinterpret_cast<Staged<T>*>(memory + (layout.staging - base)), pair, warp, lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
