#pragma once
// Tensors with numbers of different magnitudes: bench/data_independence times each in comparison with normal numbers.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase::bench {

/// Where magnitudes differ: between tiles, rows, channels or tensors, or within every tile of a kernel.
enum class Mixed { between, within };
[[nodiscard]] std::string_view name_of(Mixed mixed);

/// The operand that is changed. The source is the input, or the output's gradient in an input gradient. The weights are the
/// other operand; in a weight gradient that is the output's gradient.
enum class Changed { source, weights };

/// Dimensions of the changed operand; -1 if it has none of that kind.
struct Dimensions {
  int sample, output_channel, input_channel;
};

struct MixedData {
  std::string name;
  Mixed mixed;
  Changed changed;
  /// The changed operand, made of normal numbers; undefined if the operand lacks the dimension or the dimension is too small.
  std::function<Tensor(const Tensor& normal, const Dimensions& dimensions)> make;
};

/// All kinds of data. `recording`: samples of a mono recording, for the kind "speech".
[[nodiscard]] std::vector<MixedData> mixed_data(const std::vector<float>& recording);

/// Ten seconds at 16 kHz with the levels of speech: bursts of noise, pauses of faint noise and pauses of zeros.
[[nodiscard]] std::vector<float> synthetic_speech();

}  // namespace polyphase::bench
