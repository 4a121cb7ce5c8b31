#pragma once
// Maps a problem's dtype to the element type of the convolution drivers. Internal to cpu/.

#include <cstdint>
#include <type_traits>

#include "conv/problem.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {

/// Calls `function(E{})` with the element type of `problem`. cpu/conv/conv.hpp has already refused i64, for which the drivers
/// are not compiled.
template <class Function>
void with_element(const ConvProblem& problem, const Function& function) {
  dispatch(problem.dtype, [&](auto element) {
    if constexpr (std::is_same_v<decltype(element), std::int64_t>)
      throw DTypeError(concat("convolution: expected a floating-point dtype, got ", problem.dtype));
    else
      function(element);
  });
}

}  // namespace polyphase::cpu
