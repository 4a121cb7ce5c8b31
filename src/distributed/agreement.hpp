#pragma once
// Checks that all ranks have the same. Internal; all ranks call them together.

#include <span>
#include <string>
#include <vector>

#include "distributed/group.hpp"
#include "layers/module.hpp"

namespace polyphase::distributed {

/// Throws DistributedError on all ranks if `text`, one fact a line, is not that of rank 0; it names the rank and the first line
/// that differs.
void require_same_text(Group& group, const std::string& what, const std::string& text);
/// Throws DistributedError on all ranks, naming those whose parameters have other bits than most.
void require_same_bits(Group& group, std::span<const Tensor> parameters);
/// Every rank receives rank 0's elements of all tensors, on any device and of any strides.
void broadcast_tensors(Group& group, const NamedTensors& tensors);
/// Every rank receives rank 0's text.
[[nodiscard]] std::string broadcast_text(Group& group, const std::string& text, std::string_view label);
/// A line for each tensor: name, shape and dtype.
[[nodiscard]] std::string describe(const NamedTensors& tensors);

}  // namespace polyphase::distributed
