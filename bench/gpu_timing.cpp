#include "gpu_timing.hpp"

#include <cublas_v2.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "cuda/allocator.hpp"
#include "cuda/blas.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::bench {
namespace {

using cuda::Event;

/// Microseconds a launch of `count` in a row.
double run_many(const std::function<void(int)>& launch, int count, cudaStream_t stream,
                const std::function<void()>& meanwhile = {}) {
  Event begin(true), end(true);
  begin.record(stream);
  for (int i = 0; i < count; ++i) launch(i);
  end.record(stream);
  if (meanwhile) meanwhile();
  end.synchronize();
  return Event::elapsed_ms(begin, end) * 1e3 / count;
}

int sm_clock() {
  std::FILE* pipe = ::popen("nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits -i 0 2>/dev/null", "r");
  if (pipe == nullptr) return 0;
  std::array<char, 64> line{};
  const bool read = std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr;
  ::pclose(pipe);
  return read ? std::atoi(line.data()) : 0;
}

}  // namespace

Timing time_launches(const std::function<void(int)>& launch, cudaStream_t stream, bool sustained) {
  constexpr int kBurst = 12;
  run_many(launch, 3, stream);
  std::array<double, 5> bursts{};
  for (double& burst : bursts) burst = run_many(launch, kBurst, stream);
  std::sort(bursts.begin(), bursts.end());
  Timing timing{.us_burst = bursts[bursts.size() / 2]};
  if (!sustained) return timing;
  const int count = static_cast<int>(std::clamp(3e6 / timing.us_burst, 12.0, 300.0));
  timing.us_sustained = run_many(launch, count, stream, [&] { timing.clock_mhz = sm_clock(); });
  return timing;
}

double copy_bandwidth(cudaStream_t stream) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const cuda::Buffer from(kBytes, 0), to(kBytes, 0);
  const Timing timing = time_launches(
      [&](int) { CHECK_CUDA(cudaMemcpyAsync(to.as<void>(), from.as<void>(), kBytes, cudaMemcpyDeviceToDevice, stream)); },
      stream, false);
  return 2.0 * static_cast<double>(kBytes) / (timing.us_burst * 1e-6);
}

double blas_rate(DType dtype, Precision precision, cudaStream_t stream) {
  constexpr int kSize = 8192;
  const std::size_t bytes = std::size_t{kSize} * kSize * size_of(dtype);
  const cuda::Buffer a(bytes, 0), b(bytes, 0), c(bytes, 0);
  CHECK_CUDA(cudaMemsetAsync(a.as<void>(), 0x3c, bytes, stream));  // small finite numbers in every dtype
  CHECK_CUDA(cudaMemsetAsync(b.as<void>(), 0x3c, bytes, stream));
  const cudaDataType type = dtype == DType::f64    ? CUDA_R_64F
                            : dtype == DType::f16  ? CUDA_R_16F
                            : dtype == DType::bf16 ? CUDA_R_16BF
                                                   : CUDA_R_32F;
  const cublasComputeType_t compute = dtype == DType::f64                                   ? CUBLAS_COMPUTE_64F
                                      : dtype == DType::f32 && precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                            : CUBLAS_COMPUTE_32F;
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const bool is_double = dtype == DType::f64;
  const void* one = is_double ? static_cast<const void*>(&one64) : &one32;
  const void* zero = is_double ? static_cast<const void*>(&zero64) : &zero32;
  const Timing timing = time_launches(
      [&](int) {
        CHECK_CUBLAS(cublasGemmEx(cuda::blas_handle(0, stream), CUBLAS_OP_N, CUBLAS_OP_N, kSize, kSize, kSize, one,
                                  a.as<void>(), type, kSize, b.as<void>(), type, kSize, zero, c.as<void>(), type, kSize,
                                  compute, CUBLAS_GEMM_DEFAULT));
      },
      stream, false);
  return 2.0 * kSize * kSize * kSize / (timing.us_burst * 1e-6);
}

}  // namespace polyphase::bench
