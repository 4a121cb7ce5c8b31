#pragma once
// Measured choices, and the file that keeps them.

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/autotune.hpp"
#include "conv/problem.hpp"

namespace polyphase::cuda {

/// The fastest algorithm for this problem: known, or measured now with `issue(algorithm)`, which must be repeatable. While
/// `stream` is being captured nothing is measured and the cost model chooses.
[[nodiscard]] Algorithm autotuned(const ConvProblem& problem, ConvDirection direction, Precision precision, int device,
                                  cudaStream_t stream, const std::function<void(Algorithm)>& issue);

/// The key of a choice: every field of the problem, direction, precision, device and library version.
[[nodiscard]] std::string autotune_key(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                       const std::string& device_name);

using AutotuneChoices = std::map<std::string, Algorithm>;
/// The choices in a file. Empty if the file does not exist; empty, with a warning in the log, if it is malformed.
[[nodiscard]] AutotuneChoices read_autotune_cache(const std::string& path);
/// Replaces the whole file; logs a warning if that fails.
void write_autotune_cache(const std::string& path, const AutotuneChoices& choices);

}  // namespace polyphase::cuda
