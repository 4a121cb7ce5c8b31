#pragma once
// How the GPU benchmarks time: device events around many launches, and the ceilings of the same run.

#include <cuda_runtime.h>

#include <functional>

#include "conv/algorithm.hpp"
#include "tensor/dtype.hpp"

namespace polyphase::bench {

struct Timing {
  double us_burst = 0;      ///< one launch, the median of five bursts of 12 after a warm-up
  double us_sustained = 0;  ///< one launch out of 300 in a row (fewer where they would take more than three seconds)
  int clock_mhz = 0;        ///< of the SMs, asked of nvidia-smi in the middle of the sustained run; 0 where it does not answer
};

/// Times launch(i), which is given the number of the call so that it can rotate over its arrays. `sustained` may be left out.
[[nodiscard]] Timing time_launches(const std::function<void(int)>& launch, cudaStream_t stream, bool sustained);

/// Bytes read and written per second of a device copy of 1 GiB.
[[nodiscard]] double copy_bandwidth(cudaStream_t stream);
/// Operations per second of cuBLAS on an 8192^3 product.
[[nodiscard]] double blas_rate(DType dtype, Precision precision, cudaStream_t stream);

}  // namespace polyphase::bench
