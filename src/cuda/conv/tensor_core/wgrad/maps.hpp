#pragma once
// The tensor maps through which the weight gradient by rows reads x and y. Host only.

#include <cuda.h>

#include <cstdint>

#include "conv/problem.hpp"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// Every classes-th row of a side. Dimensions: numbers, rows of the class, samples.
struct WgradClasses {
  CUtensorMap map[kMostClasses];
  int offset[kMostClasses];  // of the row's first number: a map begins at a multiple of 16 bytes
};

struct WgradMaps {
  WgradClasses rows, columns;
};

/// What a map is of.
struct WgradMapOf {
  std::uint64_t address;
  std::uint64_t numbers, rows, samples;
  std::uint64_t row_bytes, sample_bytes;  // from one to the next
  std::uint32_t box_numbers, box_rows, box_samples = 1;
  int bytes, offset;
  bool swizzled;
};

/// Throws a DeviceError where the driver refuses it.
[[nodiscard]] CUtensorMap encode_map(const WgradMapOf& of);

/// Class `c` of the side of `tensor`.
[[nodiscard]] WgradMapOf wgrad_map_of(const WgradSide& side, const ConvProblem& problem, const void* tensor, int bytes, int c,
                                      bool swizzled);

[[nodiscard]] WgradMaps make_wgrad_maps(const WgradTiling& tiling, const ConvProblem& problem, const void* x, const void* y,
                                        int bytes);

}  // namespace polyphase::cuda::tensor_core
