#pragma once
// The activation of what a convolution reads. Not for users.

#include <cstdint>

#include "device/conv_backend.hpp"
#include "ops/conv_output.hpp"

namespace polyphase::ops {

/// Throws Error if `input` contains a meaningless combination.
void check_input(const char* name, const ConvInputOptions& input);
/// The prologue for the backend.
[[nodiscard]] ConvPrologue prologue_of(const ConvInputOptions& input);
/// Whether `values` are (channels), of x's dtype and device, as snake's parameters have to be.
[[nodiscard]] bool is_of_channels(const Tensor& values, std::int64_t channels, const Tensor& x);
/// Whether snake's parameters, if there are any, are of x's channels, dtype and device; its operation reports what does not
/// fit.
[[nodiscard]] bool fits(const ConvInputOptions& input, const Tensor& x);

}  // namespace polyphase::ops
