// Operations along the last dimension, memory bound; a thread computes one output.
//
// scatter_add inverts its index (the same for every row) first: a stable radix sort of (index[j], j) and the bounds of each
// position's run in it. Then every output is a sum over its own j, ascending: no atomics, and the CPU's order.

#include "cuda/length/length.hpp"

#include <cub/device/device_radix_sort.cuh>

#include <bit>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

// (row, position) of a flat output position.
struct Rows {
  std::int64_t count;  // outputs
  Divider by_length;
  bool narrow;
  Rows(std::int64_t outputs, std::int64_t length)
      : count(outputs), by_length(length), narrow(outputs < std::int64_t{1} << 31) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(T* out, const T* __restrict__ in, const std::int64_t* __restrict__ index, Rows rows, std::int64_t I) {
  for (std::int64_t flat = thread_position(); flat < rows.count; flat += thread_count()) {
    std::int64_t j = flat;
    const std::int64_t r = rows.by_length.split(j, rows.narrow);
    const std::int64_t i = index[j];
    out[flat] =
        static_cast<std::uint64_t>(i) < static_cast<std::uint64_t>(I) ? in[r * I + i] : T(0);  // index_check.hpp reports it
  }
}

__global__ void __launch_bounds__(kThreads)
    number_kernel(std::uint64_t* keys, std::int64_t* positions, const std::int64_t* index, std::int64_t J) {
  for (std::int64_t j = thread_position(); j < J; j += thread_count()) {
    keys[j] = static_cast<std::uint64_t>(index[j]);
    positions[j] = j;
  }
}

// begins[i] = the number of keys below i, for i = 0..I.
__global__ void __launch_bounds__(kThreads)
    bounds_kernel(std::int64_t* begins, const std::uint64_t* __restrict__ keys, std::int64_t J, std::int64_t I) {
  for (std::int64_t i = thread_position(); i <= I; i += thread_count()) {
    std::int64_t low = 0, high = J;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (static_cast<std::int64_t>(keys[middle]) < i)
        low = middle + 1;
      else
        high = middle;
    }
    begins[i] = low;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    scatter_kernel(T* out, const T* __restrict__ in, const std::int64_t* __restrict__ begins,
                   const std::int64_t* __restrict__ order, Rows rows, std::int64_t J) {
  for (std::int64_t flat = thread_position(); flat < rows.count; flat += thread_count()) {
    std::int64_t i = flat;
    const T* row = in + rows.by_length.split(i, rows.narrow) * J;
    MathOf<T> sum(0);
    for (std::int64_t s = begins[i]; s < begins[i + 1]; ++s) sum += convert<MathOf<T>>(row[order[s]]);
    out[flat] = convert<T>(sum);
  }
}

struct Frames {
  std::int64_t count, size, step;  // F frames of W elements, `step` apart
  Divider by_step;
};

template <class T>
__global__ void __launch_bounds__(kThreads) fold_kernel(T* out, const T* __restrict__ in, Rows rows, Frames f) {
  for (std::int64_t flat = thread_position(); flat < rows.count; flat += thread_count()) {
    std::int64_t t = flat;
    const T* frames = in + rows.by_length.split(t, rows.narrow) * f.count * f.size;
    std::int64_t rest = t;
    const std::int64_t reach = f.by_step.split(rest, rows.narrow);  // the last frame that begins at or before t
    std::int64_t before = t - f.size;                               // frames that begin here or earlier end before t
    const std::int64_t first = before < 0 ? 0 : f.by_step.split(before, rows.narrow) + 1;
    const std::int64_t last = min(reach, f.count - 1);
    MathOf<T> sum(0);
    for (std::int64_t frame = first; frame <= last; ++frame)
      sum += convert<MathOf<T>>(frames[frame * f.size + t - frame * f.step]);
    out[flat] = convert<T>(sum);
  }
}

}  // namespace

void gather(const Tensor& out, const Tensor& in, const Tensor& index, cudaStream_t stream) {
  if (out.numel() == 0) return;
  dispatch_size(size_of(out.dtype()), [&]<class T>(T) {
    gather_kernel<<<grid_for(out.numel()), kThreads, 0, stream>>>(static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()),
                                                                  index.data<std::int64_t>(), Rows(out.numel(), out.size(-1)),
                                                                  in.size(-1));
  });
  check_launch("gather");
}

void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const std::int64_t I = out.size(-1), J = index.numel();
  const int device = out.device().index;
  const auto count = static_cast<std::size_t>(J);
  const Buffer keys(2 * count * sizeof(std::uint64_t), device), order(2 * count * sizeof(std::int64_t), device);
  const Buffer begins(static_cast<std::size_t>(I + 1) * sizeof(std::int64_t), device);
  auto* const sorted_keys = keys.as<std::uint64_t>() + J;
  auto* const sorted = order.as<std::int64_t>() + J;
  if (J > 0) {
    number_kernel<<<grid_for(J), kThreads, 0, stream>>>(keys.as<std::uint64_t>(), order.as<std::int64_t>(),
                                                        index.data<std::int64_t>(), J);
    check_launch("scatter_add: number");
    const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(I - 1))));
    std::size_t bytes = 0;
    CHECK_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys.as<std::uint64_t>(), sorted_keys, order.as<std::int64_t>(),
                                               sorted, J, 0, bits, stream));
    const Buffer scratch(bytes, device);
    CHECK_CUDA(cub::DeviceRadixSort::SortPairs(scratch.as<void>(), bytes, keys.as<std::uint64_t>(), sorted_keys,
                                               order.as<std::int64_t>(), sorted, J, 0, bits, stream));
  }
  bounds_kernel<<<grid_for(I + 1), kThreads, 0, stream>>>(begins.as<std::int64_t>(), sorted_keys, J, I);
  check_launch("scatter_add: bounds");
  dispatch_element(out.dtype(), [&]<class T>(T) {
    scatter_kernel<<<grid_for(out.numel()), kThreads, 0, stream>>>(static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()),
                                                                   begins.as<std::int64_t>(), sorted, Rows(out.numel(), I), J);
  });
  check_launch("scatter_add");
}

void fold(const Tensor& out, const Tensor& in, std::int64_t step, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const Frames frames{in.size(-2), in.size(-1), step, Divider(step)};
  Rows rows(out.numel(), out.size(-1));
  rows.narrow = rows.narrow && step < std::int64_t{1} << 31;
  dispatch_element(out.dtype(), [&]<class T>(T) {
    fold_kernel<<<grid_for(out.numel()), kThreads, 0, stream>>>(static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()),
                                                                rows, frames);
  });
  check_launch("fold");
}

}  // namespace polyphase::cuda
