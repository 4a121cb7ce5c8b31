#pragma once
// Sums, sums of squares or magnitudes, maxima and minima of one element type, in a fixed order and without atomics.
//
// Two kernels (reduce_plan.hpp chooses). Rows: the 256 or 32 threads of a task read a piece of one output's elements together,
// 16 bytes per load for any alignment (the ends of a row one by one), with four accumulators per thread, then a tree over the
// threads. Columns: a thread computes one output over up to 128 rows; neighbouring threads load neighbouring elements. If an
// output has several pieces, their f64 results are reduced again by the same code: log(n) error growth, two launches for nearly
// everything. Bytes: every input element once. f64 additions are faster than memory on GPUs with full f64 rate.

#include <limits>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/reduce/reduce.hpp"
#include "cuda/reduce/reduce_plan.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

template <class T>
using ReduceAccumulator = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, double>;

struct RowsLaunch {
  Strided<1> kept, rows;  // an output's place; a reduced row's offset from there
  Dimension inner;
  Divider by_inner, by_pieces, by_cuts;
  RowPieces cut;
  std::int64_t tasks;  // (output, piece)
  bool narrow;         // fewer than 2^31 tasks
};
struct ColumnsLaunch {
  Strided<1> kept, reduced;
  Divider by_outputs;
  std::int64_t tasks, rows, piece_rows;  // tasks: (piece, output)
  bool narrow;
};

template <ReduceOp op, class A>
__device__ __forceinline__ A reduce_start() {
  if constexpr (op == ReduceOp::max || op == ReduceOp::min) {
    using Limits = std::numeric_limits<A>;
    if constexpr (Limits::has_infinity)
      return op == ReduceOp::max ? -Limits::infinity() : Limits::infinity();
    else
      return op == ReduceOp::max ? Limits::min() : Limits::max();
  } else {
    return A(0);
  }
}

// A NaN stays: comparisons with it are false. Integers wrap around.
template <ReduceOp op, class A>
__device__ __forceinline__ A accumulate(A sum, A x) {
  if constexpr (op == ReduceOp::max) return x > sum ? x : x != x ? x : sum;
  if constexpr (op == ReduceOp::min) return x < sum ? x : x != x ? x : sum;
  if constexpr (std::is_same_v<A, double>) {
    if constexpr (op == ReduceOp::sum) return sum + x;
    if constexpr (op == ReduceOp::sum_of_squares) return sum + x * x;
    if constexpr (op == ReduceOp::sum_of_abs) return sum + fabs(x);
  } else {
    const auto s = static_cast<std::uint64_t>(sum), w = static_cast<std::uint64_t>(x);
    if constexpr (op == ReduceOp::sum) return static_cast<A>(s + w);
    if constexpr (op == ReduceOp::sum_of_squares) return static_cast<A>(s + w * w);
    if constexpr (op == ReduceOp::sum_of_abs) return static_cast<A>(s + (x < 0 ? 0 - w : w));
  }
}
/// The operation that combines partial results.
constexpr ReduceOp merging(ReduceOp op) { return op == ReduceOp::max || op == ReduceOp::min ? op : ReduceOp::sum; }

template <class A, class In>
__device__ __forceinline__ A widen(In x) {
  if constexpr (std::is_same_v<A, In>)
    return x;
  else
    return static_cast<A>(convert<MathOf<In>>(x));
}

/// `count` elements `stride` apart, shared by `lanes` threads.
template <ReduceOp op, class A, class In>
__device__ __forceinline__ void reduce_row(A (&sums)[4], const In* from, std::int64_t count, std::int64_t stride, int lane,
                                           int lanes) {
  if (stride == 1) {
    constexpr int kPack = 16 / sizeof(In);
    const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(from) % 16 / sizeof(In));
    const std::int64_t head = min(count, past == 0 ? std::int64_t{0} : kPack - past);
    if (lane < head) sums[0] = accumulate<op>(sums[0], widen<A>(from[lane]));
    const auto* packs = reinterpret_cast<const Pack<In, kPack>*>(from + head);
    const std::int64_t body = (count - head) / kPack;
#pragma unroll 4
    for (std::int64_t p = lane; p < body; p += lanes) {
      const Pack<In, kPack> pack = packs[p];
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums[i % 4] = accumulate<op>(sums[i % 4], widen<A>(pack.at[i]));
    }
    const std::int64_t tail = head + body * kPack + lane;
    if (tail < count) sums[1] = accumulate<op>(sums[1], widen<A>(from[tail]));
    return;
  }
  for (std::int64_t first = lane; first < count; first += 4 * lanes) {
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const std::int64_t i = first + u * lanes;
      if (i < count) sums[u] = accumulate<op>(sums[u], widen<A>(from[i * stride]));
    }
  }
}

/// Rows [first, last) as one flat run; each is shorter than the number of threads that share it.
template <ReduceOp op, class A, class In>
__device__ __forceinline__ void reduce_short_rows(A (&sums)[4], const In* from, const RowsLaunch& launch, std::int64_t first,
                                                  std::int64_t last, int lane, int lanes) {
  const std::int64_t count = (last - first) * launch.inner.size;
  for (std::int64_t start = lane; start < count; start += 4 * lanes) {
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      std::int64_t i = start + u * lanes;
      if (i >= count) break;
      const std::int64_t row = launch.by_inner.split(i, count < std::int64_t{1} << 31);
      sums[u] = accumulate<op>(sums[u], widen<A>(from[launch.rows.offset(0, first + row) + i * launch.inner.stride]));
    }
  }
}

/// The sum over the task's threads, in lane 0.
template <ReduceOp op, class A>
__device__ __forceinline__ A merge_lanes(A (&sums)[4], int lanes) {
  constexpr ReduceOp merge = merging(op);
  A total = accumulate<merge>(accumulate<merge>(sums[0], sums[1]), accumulate<merge>(sums[2], sums[3]));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) total = accumulate<merge>(total, __shfl_down_sync(0xffffffffu, total, step));
  if (lanes == 32) return total;
  __shared__ A warps[kThreads / 32];  // (warps)
  __syncthreads();                    // the previous task's sums have been read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x < kThreads / 32) {
    total = warps[threadIdx.x];
#pragma unroll
    for (int step = kThreads / 64; step > 0; step /= 2) total = accumulate<merge>(total, __shfl_down_sync(0xffu, total, step));
  }
  return total;
}

/// Writes the result, or the partial result of a piece: one of `out` and `partial` is null.
template <class T, class A>
__device__ __forceinline__ void store_total(T* out, A* partial, std::int64_t place, A total) {
  if (partial != nullptr) {
    partial[place] = total;
  } else if constexpr (std::is_same_v<T, A>) {
    out[place] = total;
  } else {
    out[place] = convert<T>(total);
  }
}

template <ReduceOp op, class In, class T>
__global__ void __launch_bounds__(kThreads) reduce_rows_kernel(const In* __restrict__ in, T* out, ReduceAccumulator<T>* partial,
                                                               const __grid_constant__ RowsLaunch launch) {
  using A = ReduceAccumulator<T>;
  const RowPieces& cut = launch.cut;
  const int lanes = cut.lanes, lane = static_cast<int>(threadIdx.x) % lanes, per_block = kThreads / lanes;
  for (std::int64_t task = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / lanes; task < launch.tasks;
       task += static_cast<std::int64_t>(gridDim.x) * per_block) {
    std::int64_t piece = task;
    const std::int64_t output = launch.by_pieces.split(piece, launch.narrow);
    std::int64_t start = piece;
    const std::int64_t group = launch.by_cuts.split(start, launch.narrow);
    start *= cut.cut;
    const std::int64_t first = group * cut.group, last = min(launch.rows.count, first + cut.group);
    const In* from = in + launch.kept.offset(0, output) + start * launch.inner.stride;
    A sums[4];
#pragma unroll
    for (A& sum : sums) sum = reduce_start<op, A>();
    if (launch.inner.size >= lanes * 2 || last - first == 1) {
      const std::int64_t count = min(cut.cut, launch.inner.size - start);
      for (std::int64_t row = first + lane / cut.row_lanes; row < last; row += lanes / cut.row_lanes)
        reduce_row<op>(sums, from + launch.rows.offset(0, row), count, launch.inner.stride, lane % cut.row_lanes,
                       cut.row_lanes);
    } else {
      reduce_short_rows<op>(sums, from, launch, first, last, lane, lanes);
    }
    const A total = merge_lanes<op>(sums, lanes);
    if (lane == 0) store_total(out, partial, task, total);
  }
}

template <ReduceOp op, class In, class T>
__global__ void __launch_bounds__(kThreads)
    reduce_columns_kernel(const In* __restrict__ in, T* out, ReduceAccumulator<T>* partial,
                          const __grid_constant__ ColumnsLaunch launch) {
  using A = ReduceAccumulator<T>;
  for (std::int64_t task = thread_position(); task < launch.tasks; task += thread_count()) {
    std::int64_t output = task;
    const std::int64_t piece = launch.by_outputs.split(output, launch.narrow);
    const In* from = in + launch.kept.offset(0, output);
    const std::int64_t first = piece * launch.piece_rows, last = min(launch.rows, first + launch.piece_rows);
    A sums[4];
#pragma unroll
    for (A& sum : sums) sum = reduce_start<op, A>();
    for (std::int64_t row = first; row < last; row += 4) {
#pragma unroll
      for (int u = 0; u < 4; ++u)
        if (row + u < last) sums[u] = accumulate<op>(sums[u], widen<A>(from[launch.reduced.offset(0, row + u)]));
    }
    constexpr ReduceOp merge = merging(op);
    store_total(out, partial, task,
                accumulate<merge>(accumulate<merge>(sums[0], sums[1]), accumulate<merge>(sums[2], sums[3])));
  }
}

inline Strided<1> space_of(const Dimensions& dimensions) {
  Strided<1> space;
  space.rank = std::max(1, dimensions.rank);
  space.count = dimensions.count;
  space.narrow = dimensions.count < std::int64_t{1} << 31;
  for (int d = 0; d < dimensions.rank; ++d) {
    space.sizes[d] = Divider(dimensions.at[d].size);
    space.strides[0][d] = dimensions.at[d].stride;
  }
  return space;
}

/// In is T, or T's accumulator for partial results.
template <ReduceOp op, class In, class T>
void run_reduction(ReduceSpaces spaces, const In* in, T* out, int device, cudaStream_t stream) {
  using A = ReduceAccumulator<T>;
  const std::int64_t outputs = spaces.kept.count, rows = spaces.reduced.count;
  const bool columns = reduce_by_columns(spaces);
  const Dimension inner = columns ? Dimension{} : spaces.reduced.take_inner();
  const RowPieces cut = columns ? RowPieces{} : cut_rows(spaces.reduced.count, inner.size);
  const std::int64_t pieces = columns ? column_pieces(rows) : cut.pieces;
  const Buffer partial(pieces == 1 ? 0 : static_cast<std::size_t>(outputs * pieces) * sizeof(A), device);
  A* const between = pieces == 1 ? nullptr : partial.as<A>();
  const std::int64_t tasks = outputs * pieces;
  const bool narrow = tasks < std::int64_t{1} << 31;
  if (columns) {
    const ColumnsLaunch launch{space_of(spaces.kept),
                               space_of(spaces.reduced),
                               Divider(outputs),
                               tasks,
                               rows,
                               pieces == 1 ? rows : kColumnRows,
                               narrow};
    reduce_columns_kernel<op><<<grid_for(tasks), kThreads, 0, stream>>>(in, out, between, launch);
  } else {
    const RowsLaunch launch{space_of(spaces.kept),
                            space_of(spaces.reduced),
                            inner,
                            Divider(inner.size),
                            Divider(pieces),
                            Divider(cut.cuts),
                            cut,
                            tasks,
                            narrow};
    reduce_rows_kernel<op><<<grid_for(tasks, kThreads / cut.lanes), kThreads, 0, stream>>>(in, out, between, launch);
  }
  check_launch("reduce");
  if (pieces == 1) return;
  ReduceSpaces rest;  // (piece, output) after columns, (output, piece) after rows
  rest.kept.push({outputs, columns ? 1 : pieces});
  rest.reduced.push({pieces, columns ? outputs : 1});
  run_reduction<merging(op), A, T>(rest, between, out, device, stream);
}

/// reduce() for one element type.
template <class T>
void reduce_as(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  const ReduceSpaces spaces = split_dimensions(out.shape(), in.shape(), in.strides());
  const auto* from = static_cast<const T*>(in.raw());
  auto* to = static_cast<T*>(out.raw());
  const int device = in.device().index;
  switch (op) {
    case ReduceOp::sum:
      return run_reduction<ReduceOp::sum>(spaces, from, to, device, stream);
    case ReduceOp::sum_of_squares:
      return run_reduction<ReduceOp::sum_of_squares>(spaces, from, to, device, stream);
    case ReduceOp::sum_of_abs:
      return run_reduction<ReduceOp::sum_of_abs>(spaces, from, to, device, stream);
    case ReduceOp::max:
      return run_reduction<ReduceOp::max>(spaces, from, to, device, stream);
    case ReduceOp::min:
      return run_reduction<ReduceOp::min>(spaces, from, to, device, stream);
  }
}

}  // namespace polyphase::cuda
