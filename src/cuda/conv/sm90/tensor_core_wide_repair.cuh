#pragma once
// What the operands of the wide kernel may have got wrong, computed again.

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/sm90/exact_sum.cuh"
#include "cuda/conv/sm90/operand_source.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kRepairThreads = 256;

/// Everything the repair of an output needs.
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
  __device__ void chunk(std::int64_t g, std::int64_t first, float least, bool everything, std::uint32_t* repaired) const {
    const std::int64_t items = form.columns * kFlagPositions;
    for (std::int64_t base = threadIdx.x / 32 * 32; base < items; base += blockDim.x) {
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
      if (again) atomicAdd(repaired, 1U);
    }
  }
};

/// Computes again with FFMA what the operands may have got wrong: everything where a number had no operand, else the sums so
/// near zero that the numbers too small to split count: each loses at most 2^-36 times the other operand's 2^16, so a sum of at
/// least 32 times their number loses less than 2^-24 of itself.
template <class T>
__global__ void __launch_bounds__(kRepairThreads)
    wide_repair_kernel(const __grid_constant__ WideRepair<T> repair, bool is_scaled, const OperandHeader* __restrict__ weights,
                       const std::uint32_t* __restrict__ flags, OperandHeader* __restrict__ source) {
  const TapGemm& form = repair.form;
  const std::int64_t flags_of_group = repair.steps.source.flags, chunks = form.G * flags_of_group;
  const auto reach = static_cast<int>((kFlagPositions - 1 + (form.taps - 1) * form.tap_step) / kFlagPositions);
  const std::uint32_t weight_faults = weights->faults;
  const std::int64_t piece = (chunks + gridDim.x - 1) / gridDim.x, first = blockIdx.x * piece,
                     last = min(first + piece, chunks);
  // Mostly there is nothing to do: that is found out at once.
  bool any = weight_faults != 0;
  for (std::int64_t i = first + threadIdx.x; i < min(last + reach, chunks); i += blockDim.x) any = any || flags[i] != 0;
  if (__syncthreads_or(any ? 1 : 0) == 0) return;
  const int exponent =
      is_scaled ? -scale_exponent(source->largest, kSourceTarget) - scale_exponent(weights->largest, kWeightTarget) : 0;
  const double products = static_cast<double>(form.rows * form.planes * form.taps);
  for (std::int64_t at = first; at < last; ++at) {
    const std::int64_t g = at / flags_of_group, chunk = at - g * flags_of_group;
    std::uint32_t never = weight_faults;
    double small = min(products, static_cast<double>(weight_faults & ~kNever));
    for (std::int64_t i = chunk; i <= min(chunk + reach, flags_of_group - 1); ++i) {
      const std::uint32_t faults = flags[g * flags_of_group + i];
      never |= faults;
      small += static_cast<double>(faults & ~kNever);
    }
    if (never == 0) continue;
    const bool everything = (never & kNever) != 0;
    repair.chunk(g, chunk * kFlagPositions, ldexpf(static_cast<float>(min(products, small) * 32), exponent), everything,
                 &source->repaired);
  }
}

}  // namespace polyphase::cuda::tensor_core
