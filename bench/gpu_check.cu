#include "gpu_check.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"
#include "exact_output.hpp"

namespace polyphase::bench {
namespace {

constexpr int kThreads = 256;

/// One block for each sample; its threads share the sum.
template <class T>
__global__ void sample_kernel(const __grid_constant__ ExactOutput<T> output, const std::int64_t* __restrict__ samples,
                              SampledOutput* __restrict__ outputs) {
  __shared__ ExactSum sums[kThreads];
  const std::int64_t index = samples[blockIdx.x];
  sums[threadIdx.x] = output.sum(index, threadIdx.x, kThreads);
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      sums[threadIdx.x].value += sums[threadIdx.x + half].value;
      sums[threadIdx.x].magnitude += sums[threadIdx.x + half].magnitude;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) outputs[blockIdx.x] = {sums[0].value, sums[0].magnitude, output.result(index)};
}

}  // namespace

std::vector<SampledOutput> sampled_outputs(const ConvProblem& problem, ConvDirection direction, const DeviceOperands& operands,
                                           bool nhwc, const std::vector<std::int64_t>& samples, cudaStream_t stream) {
  const std::size_t count = samples.size();
  const cuda::Buffer indices(count * sizeof(std::int64_t), 0), outputs(count * sizeof(SampledOutput), 0);
  CHECK_CUDA(cudaMemcpyAsync(indices.as<void>(), samples.data(), count * sizeof(std::int64_t), cudaMemcpyHostToDevice, stream));
  const auto run = [&]<class T>(const T*) {
    const ExactOutput<T> output{problem,
                                direction,
                                nhwc,
                                static_cast<const T*>(operands.x),
                                static_cast<const T*>(operands.w),
                                static_cast<const T*>(operands.y)};
    sample_kernel<T><<<static_cast<unsigned>(count), kThreads, 0, stream>>>(output, indices.as<std::int64_t>(),
                                                                            outputs.as<SampledOutput>());
  };
  switch (problem.dtype) {
    case DType::f64:
      run(static_cast<const double*>(nullptr));
      break;
    case DType::f16:
      run(static_cast<const __half*>(nullptr));
      break;
    case DType::bf16:
      run(static_cast<const __nv_bfloat16*>(nullptr));
      break;
    default:
      run(static_cast<const float*>(nullptr));
      break;
  }
  cuda::check_launch("bench: samples");
  std::vector<SampledOutput> host(count);
  CHECK_CUDA(cudaMemcpyAsync(host.data(), outputs.as<void>(), count * sizeof(SampledOutput), cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  return host;
}

double sampled_error(const ConvProblem& problem, ConvDirection direction, const DeviceOperands& operands, bool nhwc,
                     const std::vector<std::int64_t>& samples, cudaStream_t stream) {
  return largest_error(sampled_outputs(problem, direction, operands, nhwc, samples, stream), terms_of(problem, direction));
}

}  // namespace polyphase::bench
