#pragma once
// The other forms of an algorithm's kernels that could do a problem, to be timed beside the one that it takes.

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
  std::function<void(Sets::Set&)> run;  ///< with the weights of the first set, in packed as the kernel wants them
};

/// What `chosen` does a problem with: of tensor_core the form, of the wide one its shape and slices too; of its weight gradient
/// the tile; else its own name.
[[nodiscard]] std::string chosen_kernel(const ConvProblem& problem, ConvDirection direction, Algorithm chosen,
                                        Precision precision);

/// The forms that `chosen` did not take though they fit. Of tensor_core: every form, of the wide one every plan, of the weight
/// gradient every tile; of direct in f32: every tile. None of other algorithms.
[[nodiscard]] std::vector<Form> other_forms(const ConvProblem& problem, ConvDirection direction, Algorithm chosen,
                                            Precision precision, Sets& sets, cudaStream_t stream);

}  // namespace polyphase::bench
