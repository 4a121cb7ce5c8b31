#pragma once
// The limit of a convolution's scratch memory.

#include <cstddef>

namespace polyphase {

/// Device memory that Algorithm::gemm may use while it runs, in bytes, for the whole process. Work is split into pieces that
/// fit. Default 256 MiB. can_implement rejects a problem whose smallest piece does not fit, with both numbers.
void set_conv_workspace_limit(std::size_t bytes);
[[nodiscard]] std::size_t conv_workspace_limit();

}  // namespace polyphase
