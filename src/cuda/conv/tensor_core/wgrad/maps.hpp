#pragma once
// The tensor maps of x and y for the weight gradient by rows. Host only.

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// One map per class: every classes-th row of a side. Dimensions: numbers, rows of the class, samples.
struct WgradClasses {
  CUtensorMap map[kMostClasses];
  int offset[kMostClasses];  // of the row's first number: a map begins at a multiple of 16 bytes
};

struct WgradMaps {
  WgradClasses rows, columns;
};

/// Class `c` of the side of `tensor`.
[[nodiscard]] TensorMapOf wgrad_map_of(const WgradSide& side, const ConvProblem& problem, const void* tensor, int bytes, int c,
                                       bool swizzled);

[[nodiscard]] WgradMaps make_wgrad_maps(const WgradTiling& tiling, const ConvProblem& problem, const void* x, const void* y,
                                        int bytes);

}  // namespace polyphase::cuda::tensor_core
