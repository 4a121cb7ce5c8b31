#pragma once
// Sums of long runs in the order of Backend::kRun, with one launch per level for all rows: the CPU's bits.

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"

namespace polyphase::cuda {

/// The first value of every row, and the row pitch.
template <class T>
struct RowsAt {
  T* first;
  std::int64_t step;
};

/// to[r][c] = the sum of from[r][j] for j = c, c + m, c + 2m, ... < count; m = by_sum.size sums per row, `sums` in total.
template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    run_sum_kernel(RowsAt<To> to, RowsAt<const From> from, std::int64_t count, std::int64_t sums, Divider by_sum, bool narrow) {
  using Sum = MathOf<To>;
  for (std::int64_t flat = thread_position(); flat < sums; flat += thread_count()) {
    std::int64_t c = flat;
    const std::int64_t r = by_sum.split(c, narrow);
    const From* row = from.first + r * from.step;
    Sum sum = convert<Sum>(row[c]);
#pragma unroll 8
    for (std::int64_t j = c + by_sum.size; j < count; j += by_sum.size) sum += convert<Sum>(row[j]);
    to.first[r * to.step + c] = convert<To>(sum);
  }
}

/// to[r][0] = the sum of the `count` >= 1 values from[r].
template <class To, class From>
void sum_runs(RowsAt<To> to, RowsAt<const From> from, std::int64_t rows, std::int64_t count, int device, cudaStream_t stream) {
  using Sum = MathOf<To>;
  const std::int64_t m = (count + Backend::kRun - 1) / Backend::kRun, sums = rows * m;
  const bool narrow = sums < std::int64_t{1} << 31;
  if (m == 1) {
    run_sum_kernel<To, From><<<grid_for(sums), kThreads, 0, stream>>>(to, from, count, sums, Divider(m), narrow);
    return check_launch("sums of runs");
  }
  const Buffer parts(static_cast<std::size_t>(sums) * sizeof(Sum), device);
  run_sum_kernel<Sum, From>
      <<<grid_for(sums), kThreads, 0, stream>>>({parts.as<Sum>(), m}, from, count, sums, Divider(m), narrow);
  check_launch("sums of runs");
  sum_runs<To, Sum>(to, {parts.as<Sum>(), m}, rows, m, device, stream);
}

}  // namespace polyphase::cuda
