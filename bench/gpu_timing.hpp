#pragma once
// How the GPU benchmarks measure time: device events around many launches; also the peak rates of the same run.

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "tensor/dtype.hpp"

namespace polyphase::bench {

/// launch(i) gets the number of the call, so that it can rotate over its arrays.
using Launch = std::function<void(int)>;

/// What happens to contenders that are much slower than the fastest in the warm-up.
struct Patience {
  double times = 2;       ///< much slower: this many times the fastest's time
  bool has_burst = true;  ///< they get one burst; false: their time is that of the warm-up of two launches
};

/// Microseconds of one launch of each contender: the median of five bursts of 12 after a warm-up; at most one burst for those
/// that are much slower. The bursts take turns. Before each there is one launch that is not timed, so that the host delays
/// nothing; after each there is a rest of twice its time, at most 100 ms, in which the card cools.
[[nodiscard]] std::vector<double> time_alternating(const std::vector<Launch>& launches, cudaStream_t stream,
                                                   const Patience& patience = {});

/// Microseconds of one launch, after other work that hides the host's time.
[[nodiscard]] double time_once(const Launch& launch, cudaStream_t stream);

struct Sustained {
  double us = 0;
  int clock_mhz = 0;  ///< in the middle of the measurement
};
/// Microseconds of one launch out of 300 in a row, fewer if they would take more than a second; `us_burst` is about the time of
/// one.
[[nodiscard]] Sustained time_sustained(const Launch& launch, double us_burst, cudaStream_t stream);

/// The clock of the SMs, and the driver's version; 0 and "unknown" if the driver's library does not give them.
[[nodiscard]] int sm_clock_mhz();
[[nodiscard]] std::string driver_version();

/// Bytes read and written per second of a device copy of 1 GiB.
[[nodiscard]] double copy_bandwidth(cudaStream_t stream);
/// Operations per second of cuBLAS on an 8192^3 product of random normal numbers.
[[nodiscard]] double blas_rate(DType dtype, Precision precision, cudaStream_t stream);

}  // namespace polyphase::bench
