#pragma once
// What the operands of the wide kernels may have got wrong, computed again with FFMA: everything where a number had no operand,
// else the sums so near zero that the numbers too small to split count: each loses at most 2^-36 times the other operand's
// 2^16, so a sum of at least 32 times their number loses less than 2^-24 of itself.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/sm90/exact_sum.cuh"
#include "cuda/conv/sm90/operand_source.cuh"
#include "cuda/conv/sm90/tensor_core_wide_store.cuh"

namespace polyphase::cuda::tensor_core {

/// The problem as it was before operands were made of it.
template <class T>
struct WideExact {
  ConvProblem problem;
  bool is_forward;
  const T* source;
  const T* w;
  const std::uint32_t* flags;  // of the source, as source_kernel writes them; null: its numbers spoil nothing
  OperandHeader* header;       // of the source
};

/// Bits of sums, by runs of positions.
template <int kRuns>
struct Suspects {
  std::uint32_t of_run[kRuns] = {};
};

/// Which sums of a tile may be wrong. A run of kFlagPositions positions is 32 sums of each thread.
template <class T>
struct WideFaults {
  static constexpr int kSumsOfRun = kFlagPositions / 8 * 4;
  const TapGemm& form;
  const WideSteps& steps;
  const WideExact<T>& exact;
  std::uint32_t weight_faults;

  /// Flags that a run of positions has to do with, its own and those that later taps reach.
  __device__ __forceinline__ int flags_of_run() const {
    return 1 + static_cast<int>((kFlagPositions - 1 + (form.taps - 1) * form.tap_step) / kFlagPositions);
  }
  __device__ __forceinline__ std::uint32_t flag(const WidePlace& place, std::int64_t index) const {
    const std::int64_t at = place.position / kFlagPositions + index;
    return exact.flags != nullptr && at < steps.source.flags ? exact.flags[place.g * steps.source.flags + at] : 0;
  }
  /// This lane's share of all flags of a warpgroup's tile, joined: zero in all lanes where there is nothing to find.
  __device__ __forceinline__ std::uint32_t look(const WidePlace& place, int positions) const {
    const int count = flags_of_run() + positions / kFlagPositions - 1;
    std::uint32_t faults = weight_faults;
    for (int i = static_cast<int>(threadIdx.x % 32); i < count; i += 32) faults |= flag(place, i);
    return faults;
  }
  /// Bit i of suspects.of_run[run]: sums[32 * run + i], scaled as the operands are, may be wrong.
  template <int kSums>
  __device__ __forceinline__ void find(const WidePlace& place, const float (&sums)[kSums],
                                       Suspects<kSums / kSumsOfRun>& suspects) const {
    const auto products = static_cast<float>(form.rows * form.planes * form.taps);
#pragma unroll
    for (int run = 0; run < kSums / kSumsOfRun; ++run) {
      std::uint32_t never = weight_faults;
      float small = static_cast<float>(weight_faults & ~kNever);
#pragma unroll 1
      for (int i = 0; i < flags_of_run(); ++i) {
        const std::uint32_t faults = flag(place, run + i);
        never |= faults;
        small += static_cast<float>(faults & ~kNever);
      }
      const float least = (never & kNever) != 0 ? INFINITY : 32.0F * fminf(products, small);
      if (least == 0.0F) continue;
#pragma unroll
      for (int i = 0; i < kSumsOfRun; ++i) suspects.of_run[run] |= fabsf(sums[run * kSumsOfRun + i]) < least ? 1U << i : 0U;
      if (least == INFINITY) suspects.of_run[run] = 0xffffffffU;
    }
  }
};

/// Suspects of a warpgroup's tile one after the other, each by a warp. Not inlined, and given all by value or as the kernel's
/// parameters: it is hardly ever called, and may not take registers from those who are.
template <class Store, class T, int kRuns>
__device__ __noinline__ void compute_again(const TapGemm& form, const WideSteps& steps, const Epilogue& epilogue,
                                           const WideExact<T>& exact, const T* __restrict__ bias, T* __restrict__ out,
                                           WidePlace place, Suspects<kRuns> suspects) {
  const Store store{form, steps, WideFinish(0, epilogue), bias, out, nullptr, static_cast<int>(threadIdx.x) % 128, 0};
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int run = 0; run < kRuns; ++run) {
    std::uint32_t own = suspects.of_run[0];
    // The next ones move to where the loop finds them: registers have no index.
#pragma unroll
    for (int i = 0; i + 1 < kRuns; ++i) suspects.of_run[i] = suspects.of_run[i + 1];
    for (;;) {
      const std::uint32_t lanes = __ballot_sync(0xffffffffU, own != 0);
      if (lanes == 0) break;
      const int of = __ffs(static_cast<int>(lanes)) - 1, i = __shfl_sync(0xffffffffU, __ffs(static_cast<int>(own)) - 1, of);
      if (lane == of) own &= own - 1;
      const int in_tile = store.thread / 32 * 16 + of / 4 + i % 4 / 2 * 8;
      const std::int64_t column = place.column + in_tile;
      const auto at = store.where(place.position + run * kFlagPositions + i / 4 * 8 + of % 4 * 2 + i % 2);
      if (in_tile >= steps.usable || column >= form.columns || at.n >= form.N || at.in_sample >= steps.sample_positions)
        continue;
      const std::uint32_t channel = steps.by_classes.divide(static_cast<std::uint32_t>(column));
      const std::int64_t a = column - channel * form.classes, t = at.t0 + a * form.out_class_step;
      if (t < 0 || t >= form.out_length) continue;
      const float sum = exact_sum(form, exact.problem, exact.is_forward, static_cast<std::int64_t>(at.n), place.g, column,
                                  at.in_sample + steps.source.position_begin, exact.source, exact.w);
      if (lane != of) continue;
      T* const to = out + store.row_of(at.n, place.g, channel) + t;
      *to = epilogue.finish<T>(sum + store.bias_of(place, channel), place.g * form.out_channels + channel, to);
    }
  }
}

inline constexpr int kRepairThreads = 256, kRepairBlocksOfRun = 4;

/// The same behind a kernel that does not repair its own tiles: everything the repair of an output needs.
template <class T>
struct WideRepair {
  TapGemm form;
  WideSteps steps;
  ConvProblem problem;
  Epilogue epilogue;
  bool is_forward;
  const T* source;
  const T* w;
  const T* bias;
  T* out;

  /// Outputs of a chunk of positions whose magnitude is below `least`.
  __device__ void chunk(std::int64_t g, std::int64_t first, float least, bool everything) const {
    const std::int64_t items = form.columns * kFlagPositions;
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.y) * blockDim.x;
    for (std::int64_t base = blockIdx.y * blockDim.x + threadIdx.x / 32 * 32; base < items; base += stride) {
      const std::int64_t item = base + threadIdx.x % 32, column = item / kFlagPositions;
      const auto flat = static_cast<std::uint32_t>(first + item % kFlagPositions);
      const std::uint32_t n = steps.source.by_sample.divide(flat);
      const std::int64_t in_sample = flat - n * steps.source.by_sample.divisor,
                         position = in_sample + steps.source.position_begin;
      const std::int64_t channel = column / form.classes, a = column - channel * form.classes;
      const std::int64_t t = form.out_stride * position + a * form.out_class_step + form.out_origin;
      const std::int64_t own = g * form.out_channels + channel;
      const std::int64_t at = (n * form.G * form.out_channels + own) * form.out_length + t;
      const bool exists = n < form.N && in_sample < steps.sample_positions && t >= 0 && t < form.out_length;
      const float offset = exists && bias != nullptr ? static_cast<float>(bias[own]) : 0.0F;
      const bool again = exists && (everything || !(fabsf(epilogue.undo(static_cast<float>(out[at])) - offset) >= least));
      for (std::uint32_t left = __ballot_sync(0xffffffffU, again); left != 0; left &= left - 1) {
        const int lane = __ffs(static_cast<int>(left)) - 1;
        const float result =
            exact_sum(form, problem, is_forward, __shfl_sync(0xffffffffU, n, lane), g, __shfl_sync(0xffffffffU, column, lane),
                      __shfl_sync(0xffffffffU, position, lane), source, w);
        if (static_cast<int>(threadIdx.x % 32) == lane) out[at] = static_cast<T>(epilogue.apply(result + offset));
      }
    }
  }
};

/// Runs of positions share blocks along x, the columns of a run blocks along y. flags may be null.
template <class T>
__global__ void __launch_bounds__(kRepairThreads)
    wide_repair_kernel(const __grid_constant__ WideRepair<T> repair, bool is_scaled, const OperandHeader* __restrict__ weights,
                       const std::uint32_t* __restrict__ flags, const OperandHeader* __restrict__ source) {
  const TapGemm& form = repair.form;
  const std::int64_t flags_of_group = repair.steps.source.flags, chunks = form.G * flags_of_group;
  const auto reach = static_cast<int>((kFlagPositions - 1 + (form.taps - 1) * form.tap_step) / kFlagPositions);
  const std::uint32_t weight_faults = weights->faults;
  const std::int64_t piece = (chunks + gridDim.x - 1) / gridDim.x, first = blockIdx.x * piece,
                     last = min(first + piece, chunks);
  // Mostly there is nothing to do: that is found out at once.
  bool any = weight_faults != 0;
  const std::int64_t end = flags == nullptr ? first : min(last + reach, chunks);
  for (std::int64_t i = first + threadIdx.x; i < end; i += blockDim.x) any = any || flags[i] != 0;
  if (__syncthreads_or(any ? 1 : 0) == 0) return;
  const int exponent = is_scaled ? -source_exponent(source) - scale_exponent(weights->largest, kWeightTarget) : 0;
  const double products = static_cast<double>(form.rows * form.planes * form.taps);
  for (std::int64_t at = first; at < last; ++at) {
    const std::int64_t g = at / flags_of_group, chunk = at - g * flags_of_group;
    std::uint32_t never = weight_faults;
    double small = min(products, static_cast<double>(weight_faults & ~kNever));
    for (std::int64_t i = chunk; i <= min(chunk + reach, flags_of_group - 1); ++i) {
      const std::uint32_t faults = flags != nullptr ? flags[g * flags_of_group + i] : 0;
      never |= faults;
      small += static_cast<double>(faults & ~kNever);
    }
    if (never == 0) continue;
    const bool everything = (never & kNever) != 0;
    repair.chunk(g, chunk * kFlagPositions, ldexpf(static_cast<float>(min(products, small) * 32), exponent), everything);
  }
}

}  // namespace polyphase::cuda::tensor_core
