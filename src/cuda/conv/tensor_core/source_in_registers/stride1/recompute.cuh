#pragma once
// Which sums of the kernel of kernel.cuh may be wrong, and those computed again with FFMA when all is
// stored.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tensor_core/pipeline/static_scheduler.cuh"
#include "cuda/conv/tensor_core/recompute/exact_sum.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/carry.cuh"
#include "cuda/conv/tensor_core/source_in_registers/stride1/producer.cuh"

namespace polyphase::cuda::tensor_core {

/// Makes NaN of a warp's sums that may be wrong in a tile with such faults: of all, or of those near zero. Nothing that happens
/// to a sum on its way makes a number of it, so that what is NaN where it is stored is computed again, what comes out as NaN,
/// too. Whether there are any.
template <class Operand, int kN, int kHalves>
__device__ __forceinline__ bool mark_suspect(SuspectCount suspect_count, float (&sums)[kHalves][kN / 2]) {
  const float nan = __int_as_float(0x7fffffff), least = suspect_count < kNeverSplit ? least_right<Operand>(suspect_count) : nan;
  std::uint32_t suspect_tiles = 0;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
#pragma unroll
    for (int m = 0; m < kHalves; ++m) {
      const bool is_right = fabsf(sums[m][i]) >= least;
      suspect_tiles |= is_right ? 0U : 1U;
      sums[m][i] = is_right ? sums[m][i] : nan;
    }
  }
  return __any_sync(0xffffffffU, suspect_tiles != 0) != 0;
}

/// The positions of a tile that its block stores in one row, of which `address` is where the tile's first output goes.
template <bool kRuns>
struct OwnPositions {
  int begin, end;
  __device__ __forceinline__ OwnPositions(const Stride1Tiling& tiling, const Stride1Walk<kRuns, true>& walk,
                                          const float* address) {
    const auto behind = static_cast<int>(reinterpret_cast<std::uintptr_t>(address) / sizeof(float)) & (tiling.aligned - 1);
    if constexpr (kRuns) {
      begin = walk.at == 0 ? tiling.aligned - behind : 0;
      end = walk.at + 1 == walk.length(tiling) ? kCarryPositions - behind : kCarryPositions;
    } else {
      begin = (tiling.aligned - behind) & (tiling.aligned - 1);
      end = begin + tiling.position_step;
    }
  }
};

/// Computes again a warp's sums of one tile that were made NaN.
template <class Mode, int kN>
__device__ __forceinline__ void recompute_row_tile(const TapGemm& gemm, const Stride1Tiling& tiling, const ExactSource<>& exact,
                                                   const Epilogue& epilogue, const float* bias, float* out,
                                                   const Stride1Walk<Mode::kCarries, true>& walk, int warp) {
  constexpr int kBatch = 32;                           // outputs of a lane, read at once
  constexpr int kAtOnce = Mode::kHalves == 1 ? 2 : 1;  // columns of a warp's read
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int own_column = kAtOnce == 1 ? 0 : lane / 16;
  const int position = Mode::position(warp) + lane % 16 + (kAtOnce == 1 ? lane / 16 * Mode::kHalfStep : 0);
  const TilePlace place = walk.place(tiling);
  const std::int64_t t = place.position + gemm.out_origin + position, first = place.g * gemm.out_channels;
  const bool exists = t >= 0 && t < gemm.out_length;
  const auto columns = static_cast<int>(min(gemm.columns - place.column, std::int64_t{kN}));
  const StoreFinish<float> finish(epilogue);
#pragma unroll 1
  for (int column0 = 0; column0 < columns; column0 += kBatch * kAtOnce) {
    const std::int64_t channel0 = first + place.column + column0 + own_column;
    float* const to = out + (place.n * gemm.G * gemm.out_channels + channel0) * gemm.out_length + t;
    std::uint32_t suspect_tiles = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (!exists || column0 + own_column + i * kAtOnce >= columns) continue;
      const float* const own = to + i * kAtOnce * gemm.out_length;
      const OwnPositions<Mode::kCarries> positions(tiling, walk, own - position);
      if (*own != *own && position >= positions.begin && position < positions.end) suspect_tiles |= 1U << i;
    }
    for (std::uint32_t owners = __ballot_sync(0xffffffffU, suspect_tiles != 0); owners != 0; owners &= owners - 1) {
      const int owner = __ffs(static_cast<int>(owners)) - 1;
      const int its_column = __shfl_sync(0xffffffffU, own_column, owner);
#pragma unroll 1
      for (std::uint32_t left = __shfl_sync(0xffffffffU, suspect_tiles, owner); left != 0; left &= left - 1) {
        const int further = (__ffs(static_cast<int>(left)) - 1) * kAtOnce;
        const float sum =
            exact_sum(gemm, exact, exact.is_forward, place.n, place.g, place.column + column0 + its_column + further,
                      place.position + __shfl_sync(0xffffffffU, position, owner));
        const float offset = bias != nullptr ? bias[channel0 - own_column + its_column + further] : 0.0F;
        float* const own = to + further * gemm.out_length;
        if (lane == owner) *own = finish(sum + offset, finish.others(own));
      }
    }
  }
}

/// Computes again what may be wrong in a warp's sums, whose tiles are all stored, by whichever warp of the block: of `number`
/// and those before it. Not inlined: it has registers of its own.
template <class Mode, int kN>
__device__ __noinline__ void recompute_rows(const TapGemm& gemm, const Stride1Tiling& tiling, const ExactSource<>& exact,
                                            const Epilogue& epilogue, const float* bias, float* out, const Stride1Order& order,
                                            std::uint32_t number, int pair, int warp) {
  Stride1Walk<Mode::kCarries, true> walk(tiling, pair);
  __syncwarp();
#pragma unroll 1
  for (; number != kNoTile; number = *order.before(tiling, walk, number, warp)) {
    walk.go_to(tiling, number);
    recompute_row_tile<Mode, kN>(gemm, tiling, exact, epilogue, bias, out, walk, warp);
  }
}

}  // namespace polyphase::cuda::tensor_core
