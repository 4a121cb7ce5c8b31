#pragma once
// What the codecs of one family (DAC, SNAC, Oobleck) are made of. Internal.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"

namespace polyphase {

/// What configurations may ask for at most, so that a hostile one is refused before memory is taken for it.
inline constexpr std::size_t kMostStages = 16;
inline constexpr std::size_t kMostCodebooks = 1024;
inline constexpr std::int64_t kLargestFrame = std::int64_t{1} << 20;  ///< samples

/// The rates are at least 1. Returns kLargestFrame + 1 if the product is larger than kLargestFrame.
[[nodiscard]] std::int64_t product_of_rates(const std::vector<std::int64_t>& rates);
/// Whether only an encoder needs the tensor that the original code keeps under this key.
[[nodiscard]] bool is_of_encoder(std::string_view key);

/// An activation of so many channels.
using MakeActivation = std::function<std::shared_ptr<Module>(std::int64_t channels)>;
/// Snake with alpha 1 at first.
[[nodiscard]] std::shared_ptr<Module> make_snake(std::int64_t channels);

struct ResidualUnits {
  std::int64_t channels = 0;
  std::int64_t groups = 1;  ///< of the dilated convolutions
  MakeActivation activation = make_snake;
  std::string name = "block";  ///< before the names of a unit's modules
};
/// Appends three of x + conv1(activation(conv7(activation(x)))), the convolution of 7 taps with dilation 1, 3 and 9.
void append_residual_units(Sequential& block, const ResidualUnits& units);

/// A convolution that keeps the length; odd kernel_size.
[[nodiscard]] Conv1d same_conv(std::int64_t in, std::int64_t out, std::int64_t kernel_size, std::int64_t groups = 1,
                               bool bias = true);
/// Upsampling by `rate` with a kernel of twice that and padding rate/2 rounded up: an odd rate gives one sample less than
/// rate*L unless `keeps_length`.
[[nodiscard]] ConvTranspose1d upsampling(std::int64_t in, std::int64_t out, std::int64_t rate, bool keeps_length = false);
/// Its mirror image.
[[nodiscard]] Conv1d downsampling(std::int64_t in, std::int64_t out, std::int64_t rate);

}  // namespace polyphase
