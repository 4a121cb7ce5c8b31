#pragma once
// A convolution case of a golden file, read from its JSON.

#include <cstdint>
#include <string>

#include "conv/problem.hpp"
#include "golden/forms.hpp"

namespace polyphase::golden {

struct ConvCase {
  std::string name;
  bool is_transpose = true;  ///< conv_transpose1d, else conv1d
  std::int64_t stride = 1;
  std::int64_t padding_left = 0;
  std::int64_t padding_right = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  std::int64_t output_padding = 0;
  /// As in conv/problem.hpp: for conv1d its y is the case's x and its x the case's y.
  ConvProblem problem;
};

/// Reads metadata entry `name`, with the shapes of NAME/x, NAME/weight and NAME/y. Throws FormatError with the case's name and
/// what is missing, unknown or inconsistent.
[[nodiscard]] ConvCase read_conv_case(const File& file, const std::string& name);

/// "conv_transpose1d (4,16,100) x (16,8,4) S=2 P=1": the differences from the defaults.
[[nodiscard]] std::string describe(const ConvCase& item, const Shape& x, const Shape& weight);

}  // namespace polyphase::golden
