// Norm, clipping, unscaling and averaging of whole lists, memory bound: the norm reads 4 bytes per f32 element; clipping (if it
// scales), unscaling and copying take 8, averaging 12. Values that depend on the norm, the loss scale or a count are read on
// the device, so that nothing waits and everything can be recorded in a graph.
//
// The norm: a block sums the squares of a piece of one tensor in f64, in an order fixed by the sizes. The partial sums, a few
// thousand at most, are added again by every block of the scaling launch, which costs less than another launch.

#include "cuda/optimizers/optimizers_lists.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/kernel/table.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kRuns = 16;
constexpr std::int64_t kMostPieces = 1024;  // per norm, unless there are more tensors

struct ListRow {
  void* data;
  std::int64_t count;
};
struct CopyRow {
  void* out;
  const void* in;
  std::int64_t count;
};
struct PairRow {
  void* average;
  const void* value;
  std::int64_t count;
};

// ---- the sums of block-wide threads -----------------------------------------------------------------------------------

/// The sum over the block's threads, in every thread.
__device__ double block_sum(double x) {
  __shared__ double warps[kThreads / 32];  // (warps)
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xffffffffu, x, step);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  double total = 0;
#pragma unroll
  for (int warp = 0; warp < kThreads / 32; ++warp) total += warps[warp];
  return total;
}

template <class T, int kPack>
__device__ __forceinline__ double squares(const T* from) {
  const auto pack = *reinterpret_cast<const Pack<T, kPack>*>(from);
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const auto x = static_cast<double>(convert<MathOf<T>>(pack.at[i]));
    sum += x * x;
  }
  return sum;
}

// ---- the norm ---------------------------------------------------------------------------------------------------------

struct NormStep {
  double* sums;  // one per block of the launch
  std::int64_t piece;
};

template <class T>
__global__ void __launch_bounds__(kThreads) squares_kernel(const __grid_constant__ Table<ListRow, NormStep> table) {
  const int row = row_of_block(table);
  const auto [start, count] = chunk_of_block(table, row, table.step.piece);
  const T* x = static_cast<const T*>(table.row[row].data) + start;
  double sum = 0;
  visit_chunk<T>(address_bits(x), count, [&](auto width, int i) { sum += squares<T, decltype(width)::value>(x + i); });
  const double total = block_sum(sum);
  if (threadIdx.x == 0) table.step.sums[blockIdx.x] = total;
}

struct ClipStep {
  const double* sums;  // (pieces)
  std::int64_t pieces;
  double max_norm;
  double* norm;  // null: another launch writes it
  bool finite_only;
};

template <class T>
__global__ void __launch_bounds__(kThreads) clip_kernel(const __grid_constant__ Table<ListRow, ClipStep> table) {
  const ClipStep& step = table.step;
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < step.pieces; i += kThreads) sum += step.sums[i];
  const double norm = sqrt(block_sum(sum));
  if (step.norm != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *step.norm = norm;
  const double factor = step.max_norm / (norm + 1e-6);
  if (factor >= 1 || (step.finite_only && !isfinite(norm))) return;
  const int row = row_of_block(table);
  const auto [start, count] = chunk_of_block(table, row);
  T* x = static_cast<T*>(table.row[row].data) + start;
  const auto times = static_cast<MathOf<T>>(factor);
  visit_chunk<T>(address_bits(x), count, [&](auto width, int i) {
    auto* place = reinterpret_cast<Pack<T, decltype(width)::value>*>(x + i);
    auto pack = *place;
#pragma unroll
    for (T& element : pack.at) element = convert<T>(convert<MathOf<T>>(element) * times);
    *place = pack;
  });
}

// ---- unscaling --------------------------------------------------------------------------------------------------------

struct UnscaleStep {
  const double* scale;
  double* found;
};

template <class T>
__global__ void __launch_bounds__(kThreads) unscale_kernel(const __grid_constant__ Table<ListRow, UnscaleStep> table) {
  const int row = row_of_block(table);
  const auto [start, count] = chunk_of_block(table, row);
  T* x = static_cast<T*>(table.row[row].data) + start;
  const auto times = static_cast<MathOf<T>>(1 / *table.step.scale);
  bool bad = false;
  visit_chunk<T>(address_bits(x), count, [&](auto width, int i) {
    auto* place = reinterpret_cast<Pack<T, decltype(width)::value>*>(x + i);
    auto pack = *place;
#pragma unroll
    for (T& element : pack.at) {
      const auto wide = convert<MathOf<T>>(element);
      bad = bad || !isfinite(wide);
      element = convert<T>(wide * times);
    }
    *place = pack;
  });
  if (bad) *table.step.found = 1;  // all threads write the same value
}

__global__ void update_loss_scale_kernel(double* state, const __grid_constant__ Table<ListRow, LossScaleStep> found) {
  const auto at = [state](LossScaleField field) -> double& { return state[static_cast<int>(field)]; };
  bool bad = false;
  for (int i = 0; i < found.rows; ++i) {
    auto* flag = static_cast<double*>(found.row[i].data);
    bad = bad || *flag != 0;
    *flag = 0;
  }
  double& scale = at(LossScaleField::scale);
  double& good = at(LossScaleField::growth_tracker);
  if (bad) {
    scale *= found.step.backoff;
    good = 0;
    at(LossScaleField::skipped) += 1;
    return;
  }
  good += 1;
  if (good < static_cast<double>(found.step.interval)) return;
  if (scale * found.step.growth <= std::numeric_limits<float>::max()) scale *= found.step.growth;
  good = 0;
}

// ---- averaging and counting -------------------------------------------------------------------------------------------

struct AveragingStep {
  double decay;
  bool ramp;
  const std::int64_t* updates;
};

template <class T>
__global__ void __launch_bounds__(kThreads) average_kernel(const __grid_constant__ Table<PairRow, AveragingStep> table) {
  using A = MathOf<T>;
  const int row = row_of_block(table);
  const auto [start, count] = chunk_of_block(table, row);
  T* average = static_cast<T*>(table.row[row].average) + start;
  const T* value = static_cast<const T*>(table.row[row].value) + start;
  const auto n = static_cast<double>(*table.step.updates);
  const double decay = table.step.ramp ? fmin(table.step.decay, (1 + n) / (10 + n)) : table.step.decay;
  const auto weight = static_cast<A>(1 - decay);
  visit_chunk<T>(address_bits(average) | address_bits(value), count, [&](auto width, int i) {
    using P = Pack<T, decltype(width)::value>;
    auto* place = reinterpret_cast<P*>(average + i);
    P a = *place;
    const P x = *reinterpret_cast<const P*>(value + i);
#pragma unroll
    for (int k = 0; k < decltype(width)::value; ++k) {
      const A old = convert<A>(a.at[k]);
      a.at[k] = convert<T>(old + weight * (convert<A>(x.at[k]) - old));
    }
    *place = a;
  });
}

template <class T, class From>
__global__ void __launch_bounds__(kThreads) copy_list_kernel(const __grid_constant__ Table<CopyRow, NoStep> table) {
  const int row = row_of_block(table);
  const auto [start, count] = chunk_of_block(table, row);
  T* out = static_cast<T*>(table.row[row].out) + start;
  const From* in = static_cast<const From*>(table.row[row].in) + start;
  visit_chunk<T>(address_bits(out) | address_bits(in), count, [&](auto width, int i) {
    constexpr int kCount = decltype(width)::value;
    const auto from = *reinterpret_cast<const Pack<From, kCount>*>(in + i);
    Pack<T, kCount> to;
#pragma unroll
    for (int k = 0; k < kCount; ++k) to.at[k] = convert<T>(from.at[k]);
    *reinterpret_cast<Pack<T, kCount>*>(out + i) = to;
  });
}

/// Runs [begin, end) of indices.
struct Runs {
  std::uint32_t begin[kRuns], end[kRuns];  // (kRuns)
  int size;
};

__global__ void advance_kernel(std::int64_t* counts, const double* skip, const __grid_constant__ Runs runs) {
  if (skip != nullptr && *skip != 0) return;
  for (int run = 0; run < runs.size; ++run)
    for (std::uint32_t i = runs.begin[run] + threadIdx.x; i < runs.end[run]; i += kThreads) ++counts[i];
}

// ---- the host's side --------------------------------------------------------------------------------------------------

template <class T>
std::vector<ListRow> rows_of(std::span<const Tensor> tensors) {
  std::vector<ListRow> rows;
  for (const Tensor& tensor : tensors)
    if (tensor.dtype() == dtype_of_element<T>) rows.push_back({tensor.raw(), tensor.numel()});
  return rows;
}

/// Calls run(T{}, rows of the tensors of that dtype) for each dtype that occurs.
template <class Run>
void for_each_type(const char* name, std::span<const Tensor> tensors, const Run& run) {
  for_each_floating_type(
      name, tensors.size(), [&](std::size_t i) { return tensors[i].dtype(); },
      [&]<class T>(T tag) { run(tag, rows_of<T>(tensors)); });
}

struct Pieces {
  std::int64_t size;   // elements
  std::int64_t count;  // over all tensors
};

/// A function of the sizes alone, and so is the order of the sum.
Pieces cut(std::span<const Tensor> tensors) {
  const std::int64_t most = std::max(kMostPieces, 2 * static_cast<std::int64_t>(tensors.size()));
  for (std::int64_t size = kChunk;; size *= 2) {
    std::int64_t count = 0;
    for (const Tensor& tensor : tensors) count += (tensor.numel() + size - 1) / size;
    if (count <= most) return {size, count};
  }
}

}  // namespace

void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm, cudaStream_t stream) {
  const Pieces pieces = cut(tensors);
  if (pieces.count == 0) {
    CHECK_CUDA(cudaMemsetAsync(norm.raw(), 0, sizeof(double), stream));
    return;
  }
  const Buffer sums(static_cast<std::size_t>(pieces.count) * sizeof(double), norm.device().index);
  auto* next = sums.as<double>();
  for_each_type("clip_norm", tensors, [&]<class T>(T, const std::vector<ListRow>& rows) {
    const auto launch = [&](Table<ListRow, NormStep>& table, std::uint32_t blocks) {
      table.step.sums = next;
      next += blocks;
      squares_kernel<T><<<blocks, kThreads, 0, stream>>>(table);
      check_launch("clip_norm");
    };
    for_each_table(std::span<const ListRow>(rows), NormStep{nullptr, pieces.size}, launch, pieces.size);
  });
  ClipStep step{sums.as<double>(), pieces.count, max_norm, norm.data<double>(), finite_only};
  for_each_type("clip_norm", tensors, [&]<class T>(T, const std::vector<ListRow>& rows) {
    for_each_table(std::span<const ListRow>(rows), step, [&](Table<ListRow, ClipStep>& table, std::uint32_t blocks) {
      table.step.norm = std::exchange(step.norm, nullptr);
      clip_kernel<T><<<blocks, kThreads, 0, stream>>>(table);
      check_launch("clip_norm");
    });
  });
}

void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found, cudaStream_t stream) {
  const UnscaleStep step{scale.data<double>(), found.data<double>()};
  for_each_type("unscale", tensors, [&]<class T>(T, const std::vector<ListRow>& rows) {
    for_each_table(std::span<const ListRow>(rows), step, [&](const Table<ListRow, UnscaleStep>& table, std::uint32_t blocks) {
      unscale_kernel<T><<<blocks, kThreads, 0, stream>>>(table);
      check_launch("unscale");
    });
  });
}

void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step, const Tensor& updates,
             cudaStream_t stream) {
  const AveragingStep averaging{step.decay, step.ramp, updates.data<std::int64_t>()};
  const auto dtype_of_pair = [&](std::size_t i) { return averages[i].dtype(); };
  for_each_floating_type("average", averages.size(), dtype_of_pair, [&]<class T>(T) {
    std::vector<PairRow> rows;
    for (std::size_t i = 0; i < averages.size(); ++i)
      if (averages[i].dtype() == dtype_of_element<T>) rows.push_back({averages[i].raw(), values[i].raw(), averages[i].numel()});
    for_each_table(std::span<const PairRow>(rows), averaging,
                   [&](const Table<PairRow, AveragingStep>& table, std::uint32_t blocks) {
                     average_kernel<T><<<blocks, kThreads, 0, stream>>>(table);
                     check_launch("average");
                   });
  });
  const std::int64_t only = 0;
  advance_counts(updates.data<std::int64_t>(), {&only, 1}, nullptr, stream);
}

void copy_list(std::span<const Tensor> out, std::span<const Tensor> in, cudaStream_t stream) {
  const auto dtype_of_pair = [&](std::size_t i) { return out[i].dtype(); };
  const auto copy_from = [&]<class T, class From>(T, From) {
    std::vector<CopyRow> rows;
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i].dtype() == dtype_of_element<T> && in[i].dtype() == dtype_of_element<From>)
        rows.push_back({out[i].raw(), in[i].raw(), out[i].numel()});
    for_each_table(std::span<const CopyRow>(rows), NoStep{}, [&](const Table<CopyRow, NoStep>& table, std::uint32_t blocks) {
      copy_list_kernel<T, From><<<blocks, kThreads, 0, stream>>>(table);
      check_launch("copy_list");
    });
  };
  for_each_floating_type("copy_list", out.size(), dtype_of_pair, [&]<class T>(T) {
    copy_from(T{}, T{});
    if constexpr (kIsHalf<T>) copy_from(T{}, float{});
  });
}

void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step, cudaStream_t stream) {
  Table<ListRow, LossScaleStep> table{};
  static_assert(table.kRows >= Backend::kMaxFound, "one launch for all flags");
  table.step = step;
  for (const Tensor& flag : found) table.row[table.rows++] = {flag.raw(), 1};
  update_loss_scale_kernel<<<1, 1, 0, stream>>>(state.data<double>(), table);
  check_launch("update_loss_scale");
}

void advance_counts(std::int64_t* counts, std::span<const std::int64_t> indices, const double* skip, cudaStream_t stream) {
  Runs runs{};
  const auto flush = [&] {
    if (runs.size == 0) return;
    advance_kernel<<<1, kThreads, 0, stream>>>(counts, skip, runs);
    check_launch("advance_counts");
    runs.size = 0;
  };
  for (const std::int64_t index : indices) {
    const auto at = static_cast<std::uint32_t>(index);
    if (runs.size > 0 && runs.end[runs.size - 1] == at) {
      ++runs.end[runs.size - 1];
      continue;
    }
    if (runs.size == kRuns) flush();
    runs.begin[runs.size] = at;
    runs.end[runs.size++] = at + 1;
  }
  flush();
}

}  // namespace polyphase::cuda
