#pragma once
// Numbers of tensors, and how far apart they are.

#include <string>
#include <vector>

#include "golden/golden.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::golden {

/// The elements, whatever the dtype and device, as doubles.
[[nodiscard]] std::vector<double> as_doubles(const Tensor& tensor);

/// sqrt of the sum of squares.
[[nodiscard]] double norm_of(const std::vector<double>& values);

/// ||result - expected|| / max(||expected||, smallest_norm): infinite where either has a NaN or the sizes differ, 0 where both
/// are zero throughout.
[[nodiscard]] double relative_error(const std::vector<double>& result, const std::vector<double>& expected,
                                    double smallest_norm = 0);

/// The worst of max |result - expected| / magnitude, element by element; infinite on NaN, on sizes that differ, and where a
/// magnitude is 0 and the elements differ.
[[nodiscard]] double componentwise_error(const std::vector<double>& result, const std::vector<double>& expected,
                                         const std::vector<double>& magnitude);

/// The unit roundoff of results in this dtype and precision, and of the inputs as they enter a product.
struct Roundoff {
  double result = 0;
  double input = 0;  ///< 0 where inputs are used as they are
};
[[nodiscard]] Roundoff roundoff_of(DType dtype, Precision precision);

/// Keeps in `worst` the one that uses most of its tolerance.
void keep_worse(Result& worst, const std::string& tensor, double error, double tolerance);

}  // namespace polyphase::golden
