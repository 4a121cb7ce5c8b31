#pragma once
// A residual unit that has to be one kernel. Internal.

#include <array>

#include "ops/conv.hpp"

namespace polyphase::ops {

/// residual_unit() of checked arguments, averaged if average.other is defined, in one kernel; undefined, with nothing done,
/// where it takes several. With replaces_other the result is average.other, which is contiguous and is overwritten; else it is
/// a tensor with memory of its own.
[[nodiscard]] Tensor unit_in_one_kernel(const Tensor& x, const std::array<UnitConv1d, 2>& convs, double scale,
                                        const AverageWith& average, bool replaces_other = false);

}  // namespace polyphase::ops
