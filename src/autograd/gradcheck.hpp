#pragma once
// Compares the tape's gradients with central differences.

#include <functional>
#include <string>
#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

struct GradcheckOptions {
  double step = 1e-6;  ///< of the central difference
  double absolute_tolerance = 1e-6;
  double relative_tolerance = 1e-4;
};

/// For every element of every f64 input that requires grad, checks d(sum of output * fixed random weights)/d(element).
/// Returns an empty string, or the first (worst) disagreement in words: input, index, analytic, numeric.
/// Throws DTypeError unless such inputs are f64.
[[nodiscard]] std::string gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& function,
                                    const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace polyphase
