#pragma once
// Runs whose numbers are no longer finite.

#include <string>

#include "io/checkpoint.hpp"

namespace training {

/// A run that has left the numbers: its loss, gradients or weights are infinite or NaN.
class Diverged : public polyphase::Error {
 public:
  using Error::Error;
};

/// The name of the first tensor with an element that is infinite or no number: "first.weight", or "state exp_avg.3 of
/// optimizer"; empty where there is none.
[[nodiscard]] std::string not_finite(const polyphase::Checkpoint& checkpoint);

/// What may be saved of a run. Throws Diverged with the step, the tensor and the advice if one is not finite.
[[nodiscard]] polyphase::Checkpoint require_finite(polyphase::Checkpoint checkpoint, const std::string& advice);

/// Reads a checkpoint. Throws FormatError; also with the tensor's name where one is not finite, as nothing that is computed
/// with it would be.
[[nodiscard]] polyphase::Checkpoint load_finite_checkpoint(const std::string& path);

}  // namespace training
