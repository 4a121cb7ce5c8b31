#pragma once
// The other forms of Algorithm::tensor_core's kernels that could do a problem, to be timed beside the one that is chosen.

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
  std::function<void(Sets::Set&)> run;  ///< with the weights of the first set, in the form that the kernel wants
};

/// Of forward and dgrad: every plan of the wide form, and the form with resident weights, where they fit and are not what
/// tensor_core chooses; none of wgrad.
[[nodiscard]] std::vector<Form> tensor_core_forms(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                                  Sets& sets, cudaStream_t stream);

}  // namespace polyphase::bench
