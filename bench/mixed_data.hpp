#pragma once
// Tensors whose numbers differ in magnitude: bench/data_independence times each beside normal numbers.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase::bench {

/// Where magnitudes differ: between tiles, rows, channels or tensors, or within every tile that a kernel works on.
enum class Mixed { between, within };
[[nodiscard]] std::string_view name_of(Mixed mixed);

/// The operand that is changed. The source is the input, or the output's gradient in an input gradient. The weights stand for
/// the other operand, which in a weight gradient is the output's gradient.
enum class Changed { source, weights };

/// Dimensions of the operand that is changed; -1 where it has none of that kind.
struct Dimensions {
  int sample, output_channel, input_channel;
};

struct MixedData {
  std::string name;
  Mixed mixed;
  Changed changed;
  /// The changed operand, from one of normal numbers; undefined where the operand lacks the dimension or has too little of it.
  std::function<Tensor(const Tensor& normal, const Dimensions& dimensions)> make;
};

/// All kinds of data. `recording`: samples of a mono recording, for the kind "speech".
[[nodiscard]] std::vector<MixedData> mixed_data(const std::vector<float>& recording);

/// Ten seconds at 16 kHz that are like speech in level: bursts of noise, pauses of faint noise and pauses of zeros.
[[nodiscard]] std::vector<float> synthetic_speech();

}  // namespace polyphase::bench
