#pragma once
// Numbers of tensors, and the difference between them.

#include <string>
#include <vector>

#include "golden/golden.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::golden {

/// The elements as f64, for any dtype and device.
[[nodiscard]] std::vector<double> as_doubles(const Tensor& tensor);

/// sqrt of the sum of squares.
[[nodiscard]] double norm_of(const std::vector<double>& values);

/// ||result - expected|| / max(||expected||, smallest_norm): infinite if either has a NaN or the sizes differ, 0 if both are
/// all zero.
[[nodiscard]] double relative_error(const std::vector<double>& result, const std::vector<double>& expected,
                                    double smallest_norm = 0);

/// The largest |result - expected| / magnitude over all elements; infinite on NaN, if the sizes differ, and if elements differ
/// where the magnitude is 0.
[[nodiscard]] double componentwise_error(const std::vector<double>& result, const std::vector<double>& expected,
                                         const std::vector<double>& magnitude);

/// The unit roundoff of results in this dtype and precision, and of the inputs of a product.
struct Roundoff {
  double result = 0;
  double input = 0;  ///< 0 if inputs are not rounded
};
[[nodiscard]] Roundoff roundoff_of(DType dtype, Precision precision);

/// Keeps in `worst` the result that uses the largest share of its tolerance.
void keep_worse(Result& worst, const std::string& tensor, double error, double tolerance);

}  // namespace polyphase::golden
