#pragma once
// Forward and dgrad of stride 1 with few columns and short reductions. Host side; the kernel is in tensor_core_boxes.cuh.

#include "cuda/conv/sm90/tensor_core_launch.cuh"

namespace polyphase::cuda::tensor_core {

/// forward or dgrad of a problem that it takes: out = source convolved with w, plus bias unless null, through an
/// epilogue that is light and has one thing beside outputs at most, a multiple of 16 bytes from them. On `stream`.
void boxes_gather(const Gather& call);

}  // namespace polyphase::cuda::tensor_core
