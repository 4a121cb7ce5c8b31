#pragma once
// BatchNorm over the batches of all ranks.

#include "../distributed/group.hpp"
#include "../layers/module.hpp"

namespace polyphase::distributed {

/// Every BatchNorm1d of `module` normalises, in training, with the mean and variance of all ranks' batches, forward and
/// backward, as if one process had the whole batch, up to rounding. Each forward waits for two sums of 2C + 1 numbers over the
/// ranks, each backward for one. All ranks must run the layers in the same order. Does nothing in a group of one. Returns the
/// number of layers.
std::int64_t synchronize_batch_norm(Module& module, const Group& group);

}  // namespace polyphase::distributed
