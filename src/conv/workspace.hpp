#pragma once
// How much scratch memory a convolution may take.

#include <cstddef>

namespace polyphase {

/// Device memory that Algorithm::gemm may hold while it runs, in bytes; the process's. Work is cut into pieces that fit.
/// Default 256 MiB. A problem whose smallest piece does not fit is refused by can_implement with both numbers.
void set_conv_workspace_limit(std::size_t bytes);
[[nodiscard]] std::size_t conv_workspace_limit();

}  // namespace polyphase
