#pragma once
// How the GPU benchmarks time: device events around many launches, and the ceilings of the same run.

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "tensor/dtype.hpp"

namespace polyphase::bench {

/// launch(i) is given the number of the call, so that it can rotate over its arrays.
using Launch = std::function<void(int)>;

/// What is done with those that are much slower in the warm-up than the fastest.
struct Patience {
  double times = 2;       ///< the fastest's: much
  bool has_burst = true;  ///< one burst; else what the warm-up of two launches said
};

/// Microseconds of one launch of each: the median of five bursts of 12 after a warm-up; of what is much slower, one burst at
/// most. The bursts take turns, each behind a launch of its own that is not timed, so that no
/// host is waited for, and before a rest of twice its time, at most 100 ms, in which the card cools.
[[nodiscard]] std::vector<double> time_alternating(const std::vector<Launch>& launches, cudaStream_t stream,
                                                   const Patience& patience = {});

/// Microseconds of one launch, behind work that is waited for.
[[nodiscard]] double time_once(const Launch& launch, cudaStream_t stream);

struct Sustained {
  double us = 0;
  int clock_mhz = 0;  ///< in the middle of it
};
/// Microseconds of one launch out of 300 in a row, fewer where they would take more than a second; `us_burst` is about how long
/// one takes.
[[nodiscard]] Sustained time_sustained(const Launch& launch, double us_burst, cudaStream_t stream);

/// The clock of the SMs, and the driver's version; 0 and "unknown" where the driver's library does not say.
[[nodiscard]] int sm_clock_mhz();
[[nodiscard]] std::string driver_version();

/// Bytes read and written per second of a device copy of 1 GiB.
[[nodiscard]] double copy_bandwidth(cudaStream_t stream);
/// Operations per second of cuBLAS on an 8192^3 product of random normal numbers.
[[nodiscard]] double blas_rate(DType dtype, Precision precision, cudaStream_t stream);

}  // namespace polyphase::bench
