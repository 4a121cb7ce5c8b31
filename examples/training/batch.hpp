#pragma once
// The input and target of one training step: from the loader, and for the network.

#include <cstdint>
#include <vector>

#include "tensor/tensor.hpp"

namespace training {

namespace pp = polyphase;

/// On the host, row by row.
struct Batch {
  std::int64_t step = 0;
  std::int64_t rows = 0;    ///< N
  std::vector<float> low;   ///< (N, context_left + window/factor + context_right); empty without a low rate
  std::vector<float> high;  ///< (N, window)
};

/// On the device that trains.
struct TensorBatch {
  std::int64_t step = 0;
  pp::Tensor low;   ///< (N, 1, context_left + window/factor + context_right); (N, 1, 0) without a low rate
  pp::Tensor high;  ///< (N, 1, window)
};

}  // namespace training
