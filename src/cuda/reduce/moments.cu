// Backend::moments: mean = total/n, centred = in - mean, variance = q*(sum of centred^2 - n*rest^2).
//
// Totals come from the reductions and stay in f64 between launches (reduce_kernel.cuh). In f32 the rest of the mean is known
// from its total; in f64 it is the mean of the centred values. Bytes: `in` twice, `centred` twice, in f64 three times.

#include "cuda/elementwise/copy.hpp"
#include "cuda/elementwise/elementwise.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/reduce/moments.hpp"
#include "cuda/reduce/reduce_kernel.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

/// out = total*share, rounded; `rest`, unless null, is the rounding error.
template <class T>
__global__ void __launch_bounds__(kThreads)
    average_kernel(const double* __restrict__ total, std::int64_t outputs, double share, T* out, T* rest) {
  for (std::int64_t i = thread_position(); i < outputs; i += thread_count()) {
    const double exact = total[i] * share;
    out[i] = static_cast<T>(exact);
    if (rest != nullptr) rest[i] = static_cast<T>(exact - static_cast<double>(out[i]));
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) variance_kernel(const double* __restrict__ squares, const T* __restrict__ rest,
                                                            std::int64_t outputs, double n, double q, T* variance) {
  for (std::int64_t i = thread_position(); i < outputs; i += thread_count()) {
    const auto off = static_cast<double>(rest[i]);
    const double sum = squares[i] - n * off * off;
    variance[i] = static_cast<T>((sum < 0 ? 0 : sum) * q);
  }
}

template <class T>
void moments_as(const Moments& out, const Tensor& in, double q, cudaStream_t stream) {
  const int device = in.device().index;
  const std::int64_t outputs = out.mean.numel();
  const double n = static_cast<double>(in.numel() / outputs);
  const Buffer memory(static_cast<std::size_t>(outputs) * sizeof(double), device);
  auto* const total = memory.as<double>();
  auto* const mean = static_cast<T*>(out.mean.raw());
  auto* const rest = static_cast<T*>(out.rest.raw());
  const auto* const centred = static_cast<const T*>(out.centred.raw());
  run_reduction<ReduceOp::sum>(split_dimensions(out.mean.shape(), in.shape(), in.strides()), static_cast<const T*>(in.raw()),
                               total, device, stream);
  average_kernel<<<grid_for(outputs), kThreads, 0, stream>>>(total, outputs, 1 / n, mean, rest);
  check_launch("moments: mean");
  const Tensor operands[] = {in, out.mean_everywhere()};
  map(MapOp::sub, out.centred, operands, {}, stream);
  const ReduceSpaces spaces = split_dimensions(out.mean.shape(), in.shape(), out.centred.strides());
  if constexpr (std::is_same_v<T, double>) {  // the total does not have the bits that the mean needs
    run_reduction<ReduceOp::sum>(spaces, centred, total, device, stream);
    average_kernel<<<grid_for(outputs), kThreads, 0, stream>>>(total, outputs, 1 / n, rest, static_cast<T*>(nullptr));
    check_launch("moments: rest");
  }
  run_reduction<ReduceOp::sum_of_squares>(spaces, centred, total, device, stream);
  variance_kernel<<<grid_for(outputs), kThreads, 0, stream>>>(total, rest, outputs, n, q, static_cast<T*>(out.variance.raw()));
  check_launch("moments: variance");
}

}  // namespace

void moments(const Moments& out, const Tensor& in, double q, cudaStream_t stream) {
  if (out.mean.numel() == 0) return;
  if (in.numel() == 0) {
    fill(out.mean, 0, stream);
    fill(out.rest, 0, stream);
    return fill(out.variance, 0 * q, stream);
  }
  in.dtype() == DType::f64 ? moments_as<double>(out, in, q, stream) : moments_as<float>(out, in, q, stream);
}

}  // namespace polyphase::cuda
