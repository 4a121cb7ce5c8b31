#pragma once
// The normalisation of batch_norm() over the batches of several processes. Not for users.

#include "ops/norm.hpp"

namespace polyphase::ops {

/// The results of normalize_synchronized().
struct SynchronizedBatch {
  Tensor normal;    ///< x's shape: (x - mean)/sqrt(variance + epsilon), on the tape
  Tensor mean;      ///< (C), of all processes' batches
  Tensor unbiased;  ///< (C), their variance times count/(count - 1)
};

/// x (N, C) or (N, C, L), f32 or f64, not of 16 bits. The statistics are summed in f64: first the means, then the squares
/// around the common mean. The gradient is that of the common statistics too. Throws ShapeError if all processes together have
/// a single value per channel.
[[nodiscard]] SynchronizedBatch normalize_synchronized(const Tensor& x, double epsilon, StatisticsSum& over);

}  // namespace polyphase::ops
