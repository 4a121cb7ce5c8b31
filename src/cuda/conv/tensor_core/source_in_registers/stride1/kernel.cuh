#pragma once
// Forward and dgrad with few columns on wgmma (sm_90a), with the source operand in registers. The mathematics are in
// cuda/conv/tap_gemm.hpp.
//
// gemm_m = positions, gemm_n = columns, gemm_k = (row, plane, tap). A block keeps the weights of its columns in shared memory.
// A producer warpgroup copies rows of the source unchanged. Two consumer warpgroups, each with tiles of its own, read from them
// what a product needs, convert it and multiply from registers, so that the products read shared memory for the weights only.
// One consumer stores while the other multiplies.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/pipeline/ring.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/conv/tensor_core/pipeline/tiles.hpp"
#include "cuda/conv/tensor_core/pipeline/warp_role.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/producer.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/recompute.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/store.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kStride1Threads = (kPairs + 1) * 128;

/// Shared memory of a block: the weights, each consumer's ring and staging, the columns' biases, barriers.
struct Stride1Layout {
  std::uint32_t weights, ring, staging, bias, barriers, own;
  __device__ Stride1Layout(std::uint32_t base, const Stride1Tiling& tiling, int element_bytes, int pair) {
    const auto stages = static_cast<std::uint32_t>(tiling.stages * tiling.stage_bytes);
    const auto store = static_cast<std::uint32_t>(tiling.staging_bytes);
    const int of_ring = tiling.rings == 1 ? 0 : pair;
    weights = base;
    const std::uint32_t rings = weights + static_cast<std::uint32_t>(tiling.count * tiling.weight_bytes);
    const std::uint32_t stagings = rings + static_cast<std::uint32_t>(tiling.rings) * stages;
    ring = rings + static_cast<std::uint32_t>(of_ring) * stages;
    staging = stagings + static_cast<std::uint32_t>(pair) * store;
    bias = stagings + kPairs * store;
    barriers = bias + static_cast<std::uint32_t>(tiling.columns * rows_bias_bytes(element_bytes));
    own = barriers + 64 + 16 * kBroadcastRuns + static_cast<std::uint32_t>(of_ring) * 128;
  }
  __device__ __forceinline__ std::uint32_t weights_full() const { return barriers; }
  /// A consumer signals here, once per tile, that the other may begin its next one.
  __device__ __forceinline__ std::uint32_t turn(int pair) const { return barriers + 8 + static_cast<std::uint32_t>(pair) * 8; }
  /// A consumer signals here that the sectors kept for the other's next tile are ready.
  __device__ __forceinline__ std::uint32_t kept(int pair) const { return barriers + 24 + static_cast<std::uint32_t>(pair) * 8; }
  /// Signals that the block's run number `turn`, after the first, is known; its number is 8 bytes further on.
  __device__ __forceinline__ std::uint32_t broadcast(std::uint32_t turn) const {
    return barriers + 64 + turn % kBroadcastRuns * 16;
  }
  __device__ __forceinline__ std::uint32_t full(int stage) const { return own + static_cast<std::uint32_t>(stage) * 16; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return full(stage) + 8; }
};

/// The products of the first or second half of a step's conversion, as one group. Two parts: high * (low, high) as one product
/// with twice the columns, then low*high. In the first step of a tile there are no sums to add to.
template <class Mode, int kN, int kTurn>
__device__ __forceinline__ void multiply_stride1(const Stride1Words<Mode>& words, std::uint64_t weights, bool adds,
                                                 Stride1Sums<Mode, kN>& sums) {
  using Mma = ptx::WgmmaFromRegisters<Mode::Operand::kType, kN, false>;
  using Both = ptx::WgmmaFromRegisters<Mode::Operand::kType, 2 * kN, false>;
  constexpr bool kSplit = Mode::Operand::kParts == 2;
  constexpr std::uint32_t kTap = Mode::Operand::kParts * 2 * kN;  // in 16 bytes
  constexpr int kPartOfTurn = kSplit ? kTurn : 0;
  ptx::wgmma_fence();
#pragma unroll
  for (int tap = 0; tap < Mode::kTaps; ++tap) {
    const std::uint64_t own = weights + static_cast<std::uint32_t>(tap) * kTap;
    const bool adds_here = tap > 0 || adds;
#pragma unroll
    for (int m = 0; m < Mode::kHalves; ++m) {
      if (!kSplit && m != kTurn) continue;
      const auto& a = words.v[Mode::element(m, 0, tap)][kPartOfTurn];
      const auto& b = words.v[Mode::element(m, 1, tap)][kPartOfTurn];
      const std::uint32_t fragment[4] = {a[0], b[0], a[1], b[1]};
      if constexpr (!kSplit) {
        Mma::multiply(sums.v[m], fragment, own, adds_here);
      } else if constexpr (kTurn == 0) {
        Both::multiply(sums.v[m], fragment, own, adds_here);
      } else {
        Mma::multiply(sums.mixed(), fragment, own + kN, true);
      }
    }
  }
  ptx::wgmma_commit();
}

/// Stores a tile from registers, pairs of outputs at a time, from `to` on.
template <class Mode, int kN>
__device__ __forceinline__ void store_own_pairs(Stride1Sums<Mode, kN>& sums, const Stride1Finish& finish,
                                                const Epilogue& epilogue, const LightActivation& active, const float* biases,
                                                std::int64_t length, int lane, typename Mode::Operand::Source* to) {
  if constexpr (Mode::kAux)
    store_pairs_with_aux<Mode, kN>(sums, finish, epilogue, biases, length, lane, to);
  else if (Mode::kBytes == 4 && active.is_there)
    store_pairs<Mode, kN, true>(sums, finish, active, biases, length, lane, to);
  else
    store_pairs<Mode, kN, false>(sums, finish, active, biases, length, lane, to);
}

/// Stores a tile through the staging, some columns of all warps at a time. `own_columns`, `bias`: as store_rows() wants them.
template <class Mode, int kN>
__device__ __forceinline__ void store_passes(const TapGemm& gemm, const Stride1Tiling& tiling, const Epilogue& epilogue,
                                             const Stride1Finish& finish, const LightActivation& active, const TilePlace& place,
                                             std::int64_t row_of_sample, std::int64_t first_bias, std::int64_t t0,
                                             const typename Mode::Operand::Source* __restrict__ bias, const float* biases,
                                             int position, int pair, int warp, int lane, Stride1Sums<Mode, kN>& sums,
                                             typename TraitsOf<Mode, kN>::S* staging,
                                             typename Mode::Operand::Source* __restrict__ out) {
  using Traits = TraitsOf<Mode, kN>;
  constexpr int kOwn = Traits::kPass / 4;  // columns that a warp stores
#pragma unroll 1
  for (int pass = 0; pass < kN / Traits::kPass; ++pass) {
    ptx::named_barrier(1 + pair, 128);
    stage_pass<Mode, kN, 0>(pass, sums.high(), finish, biases, position, lane, staging);
    if (!finish.at_once) finish_columns<Mode, kN>(finish, active, biases + pass * Traits::kPass, position, lane, staging);
    ptx::named_barrier(1 + pair, 128);
    if (Mode::kBytes == 4 && finish.at_once && active.is_there) {
      activate_staged(active, staging, Traits::kPass * Traits::kPitch, warp * 32 + lane);
      ptx::named_barrier(1 + pair, 128);
    }
    store_rows<typename Mode::Operand::Source, Traits::kPositions, Traits::kPitch, kOwn, false>(
        gemm, tiling, row_of_sample, place.column + pass * Traits::kPass + warp * kOwn, place.position, bias, first_bias,
        epilogue, staging + warp * kOwn * Traits::kPitch, lane, out);
    if constexpr (Mode::kAux)
      finish_stored_rows<Traits::kPositions, kOwn>(
          gemm, epilogue, t0, lane,
          out + (row_of_sample + place.column + pass * Traits::kPass + warp * kOwn) * gemm.out_length + t0);
  }
}

template <class Mode, int kN>
__device__ __forceinline__ void consume_stride1(
    const TapGemm& gemm, const Stride1Tiling& tiling, const StoreMaps& maps, const Epilogue& epilogue,
    const Stride1Layout& layout, const unsigned char* ring, const typename Mode::Operand::Source* __restrict__ source,
    const typename Mode::Operand::Source* __restrict__ bias, typename Mode::Operand::Source* __restrict__ out,
    const OperandHeader* header, const WeightHeader* __restrict__ weight_header, const ExactSource<>& exact,
    const float* biases, typename TraitsOf<Mode, kN>::S* staging, const Stride1Order& order, int pair, int warp, int lane) {
  using Operand = typename Mode::Operand;
  using Traits = TraitsOf<Mode, kN>;
  using T = typename Operand::Source;
  if constexpr (Operand::kScaled) wait_for_grid_before();
  const int source_scale = Operand::kScaled ? source_exponent(header) : 0;
  const int weight_scale = Operand::kScaled ? scale_exponent(weight_header->largest, kWeightTarget) : 0;
  const LightActivation active(epilogue, !Mode::kAux && epilogue.activation != Activation::none);
  const Stride1Finish finish(epilogue, -source_scale - weight_scale, Mode::kCarries || Mode::kBytes == 4);
  Stride1Reader<Mode> reader(tiling, source_scale, warp, lane);
  const SuspectCount of_weights =
      Operand::kScaled ? weight_suspect_count(static_cast<Split>(weight_header->split), gemm.rows * gemm.taps) : 0;
  std::uint32_t suspect = kNoTile;  // the last tile in which this warp has suspect sums
  const std::uint32_t weight_step = static_cast<std::uint32_t>(tiling.weight_bytes) / 16;
  const std::uint64_t weights = ptx::operand_descriptor(layout.weights, Operand::kParts * kN * 16);
  const std::uint64_t bias_rows = ptx::operand_descriptor(layout.bias, kN * 16);
  OneRows<Mode> ones;
  ptx::mbarrier_wait(layout.weights_full(), 0);
  Ring at;
  if (Mode::kInTurns && pair == 1) at.skip(tiling.count, tiling.stages);
  std::uint32_t turns = pair == 0 ? 1 : 0;
  Stride1Walk<Mode::kCarries, Mode::kBytes == 4> walk(tiling, pair);
#pragma unroll 1
  for (; walk.more(); walk.advance(tiling, layout), ++turns) {
    const TilePlace place = walk.place(tiling);
    reader.begin_tile(gemm, Stride1Tile<T>(gemm, place, source));
    if constexpr (Mode::kAux && Operand::kParts == 2)  // one part leaves no time for it
      prefetch_aux<Traits::kPositions>(gemm, place, epilogue, warp * 32 + lane, out);
    if (pair == 1 || turns > 1) ptx::mbarrier_wait(layout.turn(1 - pair), turns & 1);
    Stride1Sums<Mode, kN> sums;
    if constexpr (Mode::kBeginsAtBias) ones.multiply(bias_rows, sums.v);
    // In strict turns the other begins when this tile's source has arrived; else the two only must not run in step.
    int until = Mode::kInTurns ? tiling.count - 1 : tiling.turn;
    const auto pass_turn = [&] {
      if (until-- == 0 && lane == 0) ptx::mbarrier_arrive(layout.turn(pair));
    };
    Stride1Raw<Mode> raw;
    std::uint64_t own = weights;
    const auto fetch = [&] {
      ptx::mbarrier_wait(layout.full(at.stage), at.parity);
      reader.load(ring + at.stage * tiling.stage_bytes, raw);
    };
    Stride1Words<Mode> words;
    // Two groups of products per step: one is outstanding while the operands of the other are converted.
#pragma unroll 1
    for (int left = tiling.count; left > 0; --left) {
      if (!Mode::kInTurns && left % 2 == 0) pass_turn();
      fetch();
      if (Mode::kInTurns) pass_turn();
      ptx::wgmma_wait<1>();
      reader.template convert<0>(raw, words);
      const bool adds = Mode::kBeginsAtBias || left < tiling.count;
      multiply_stride1<Mode, kN, 0>(words, own, adds, sums);
      // All reads of the stage are complete: the products that use them are issued. (An arrival can overtake outstanding
      // reads.) With one part an early release is no faster, and five taps spill more.
      if constexpr (Operand::kParts == 2) ptx::mbarrier_arrive(layout.empty(at.stage));
      ptx::wgmma_wait<1>();
      if constexpr (Mode::kBeginsAtBias) ones.keep();
      reader.template convert<1>(raw, words);
      multiply_stride1<Mode, kN, 1>(words, own, adds, sums);
      if constexpr (Operand::kParts == 1) ptx::mbarrier_arrive(layout.empty(at.stage));
      own += weight_step;
      at.advance(tiling.stages);
    }
    if (Mode::kInTurns) at.skip(tiling.count, tiling.stages);
    if (until >= 0 && lane == 0) ptx::mbarrier_arrive(layout.turn(pair));
    // The tile's place is computed during the last products.
    const std::int64_t first_bias = place.g * gemm.out_channels;
    const std::int64_t row_of_sample = place.n * gemm.G * gemm.out_channels + first_bias;
    const std::int64_t t0 = place.position + gemm.out_origin;
    const bool is_plain = finish.at_once && t0 >= 0 && t0 + Traits::kPositions <= gemm.out_length;
    T* const own_outputs = out + (row_of_sample + place.column + 2 * (lane % 4)) * gemm.out_length + t0 + reader.position;
    ptx::wgmma_wait<0>();
#pragma unroll
    for (auto& of_half : sums.v) ptx::fence_registers(of_half);
    if constexpr (Operand::kScaled) {
      const SuspectCount suspect_count = of_weights + reader.suspect_count();
      if (__builtin_expect(static_cast<long>(suspect_count != 0), 0L) != 0) {
        sums.join();
        if (mark_suspect<Operand, kN>(suspect_count, sums.high())) {
          const std::uint32_t number = walk.number(tiling);
          if (lane == 0) *order.before(tiling, walk, number, warp) = suspect;
          suspect = number;
        }
      }
    }
    if constexpr (Mode::kCarries) {
      using S = typename Traits::S;
      auto* const own = reinterpret_cast<unsigned char*>(staging) + Traits::kCarryStaging;
      auto* const other = own + (pair == 0 ? tiling.staging_bytes : -tiling.staging_bytes);
      const Kept kept{layout.staging + Traits::kCarryStaging, other, layout.kept(pair), layout.kept(1 - pair), turns & 1};
      const auto finished = [&](S number, int column) -> T {
        if (finish.at_once) return static_cast<T>(number);
        return static_cast<T>(finish_staged<Mode>(static_cast<float>(number), finish, active, biases, column));
      };
      store_carried<Mode, kN, Traits::kCarryPass>(sums.high(), finish.scale, biases, finish.at_once, is_plain, active, tiling,
                                                  maps, CarryWindow(tiling, t0, walk.at == 0), row_of_sample + place.column,
                                                  gemm.out_length, reader.position, warp, lane, 1 + pair,
                                                  reinterpret_cast<unsigned char*>(staging), kept, finished, out);
      continue;
    } else if (tiling.stores_pairs && is_plain) {
      store_own_pairs<Mode, kN>(sums, finish, epilogue, active, biases, gemm.out_length, lane, own_outputs);
      continue;
    }
    sums.join();
    store_passes<Mode, kN>(gemm, tiling, epilogue, finish, active, place, row_of_sample, first_bias, t0, bias, biases,
                           reader.position, pair, warp, lane, sums, staging, out);
  }
  if (Mode::kCarries && lane == 0) ptx::bulk_wait();
  if constexpr (Operand::kScaled) {
    ptx::named_barrier(1 + kPairs, kPairs * 128);  // a warp may have stored another's sums
    if (suspect != kNoTile) recompute_rows<Mode, kN>(gemm, tiling, exact, out, order, suspect, pair, warp);
  }
}

template <class Mode, int kN>
__global__ void __launch_bounds__(kStride1Threads, 1)
    stride1_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Stride1Tiling tiling,
                   const __grid_constant__ Stride1Maps maps, const __grid_constant__ StoreMaps store_maps,
                   const __grid_constant__ Epilogue epilogue, const typename Mode::Operand::Source* __restrict__ source,
                   const unsigned char* __restrict__ packed, const typename Mode::Operand::Source* __restrict__ bias,
                   typename Mode::Operand::Source* __restrict__ out, const OperandHeader* header,
                   const __grid_constant__ ExactSource<> exact, const __grid_constant__ Stride1Order order) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Operand = typename Mode::Operand;
  // f32 copiers with three taps would spill with 40.
  constexpr int kCopierRegisters = Mode::kBytes == 4 && Mode::kTaps == 3 ? 56 : 40;
  constexpr int kMultiplierRegisters = (65536 / kStride1Threads * (kPairs + 1) - kCopierRegisters) / kPairs / 8 * 8;
  extern __shared__ __align__(128) unsigned char raw[];
  const std::uint32_t base = ptx::shared_address(raw);
  const int group = group_of_block(), warp = warp_of_group(), lane = lane_of_warp();
  const int pair = group == kPairs ? warp / 2 : group;
  const Stride1Layout layout(base, tiling, Mode::kBytes, pair);
  if (group < kPairs && warp == 0 && lane == 0) {
    for (int stage = 0; pair < tiling.rings && stage < tiling.stages; ++stage) {
      ptx::mbarrier_init(layout.full(stage), Mode::kCopiers);
      ptx::mbarrier_init(layout.empty(stage), 128);  // each reader arrives for itself
    }
    ptx::mbarrier_init(layout.turn(pair), 4);
    ptx::mbarrier_init(layout.kept(pair), 2 * 32);  // each sharing thread arrives for itself
    if (pair == 0) {
      ptx::mbarrier_init(layout.weights_full(), 1);
      for (std::uint32_t turn = 0; turn < kBroadcastRuns; ++turn) ptx::mbarrier_init(layout.broadcast(turn), 1);
    }
    ptx::fence_mbarrier_init();
  }
  float* biases = reinterpret_cast<float*>(raw + (layout.bias - base));
  if (threadIdx.x < kN) keep_bias<Mode, kN>(gemm, tiling, bias, raw + (layout.bias - base));
  __syncthreads();
  if (group == kPairs) {
    ptx::registers_down<kCopierRegisters>();
    if (warp == 0 && lane == 0) {
      const auto total = static_cast<std::uint32_t>(tiling.count * tiling.weight_bytes);
      const unsigned char* from = packed + kWeightHeaderBytes + static_cast<std::int64_t>(Walk(tiling, 0).tile) * total;
      copy_weights(from, total, layout.weights, layout.weights_full());
    }
    copy_rows<typename Operand::Source, Mode::kCopiers, Mode::kInTurns, Mode::kCarries>(
        gemm, tiling, maps, layout, order, source, pair, (Mode::kInTurns ? warp : warp % 2) * 32 + lane);
    return;
  }
  ptx::registers_up<kMultiplierRegisters>();
  consume_stride1<Mode, kN>(gemm, tiling, store_maps, epilogue, layout, raw + (layout.ring - base), source, bias, out, header,
                            reinterpret_cast<const WeightHeader*>(packed), exact, biases,
                            reinterpret_cast<Staged<typename Operand::Source>*>(raw + (layout.staging - base)), order, pair,
                            warp, lane);
#endif
}

}  // namespace polyphase::cuda::tensor_core
