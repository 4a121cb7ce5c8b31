#pragma once
// The other kernels and tilings of an algorithm that can compute a problem, to be timed in addition to the chosen one.

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "gpu_case.hpp"

namespace polyphase::bench {

struct Form {
  std::string name;
  std::function<void(Sets::Set&)> run;  ///< with the weights of the first set, which are packed if the kernel needs that
};

/// The name of what `chosen` runs: for tensor_core the kernel, for the preconverted one also its shape and slices; for its
/// weight gradient the tiling; otherwise the algorithm's name.
[[nodiscard]] std::string chosen_kernel(const ConvProblem& problem, ConvDirection direction, Algorithm chosen,
                                        Precision precision);

/// The kernels and tilings that `chosen` did not take although they fit. For tensor_core every kernel, for the preconverted one
/// every plan, for the weight gradient every tiling; for direct in f32 every tile. Other algorithms have none.
[[nodiscard]] std::vector<Form> other_forms(const ConvProblem& problem, ConvDirection direction, Algorithm chosen,
                                            Precision precision, Sets& sets, cudaStream_t stream);

}  // namespace polyphase::bench
