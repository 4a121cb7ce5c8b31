#pragma once
// Checkpoints of a run of several processes.

#include <string>

#include "../distributed/group.hpp"
#include "../io/checkpoint.hpp"

namespace polyphase::distributed {

/// Writes one file for all ranks, which must all call it: rank 0's `checkpoint` with the generators of every rank. The file
/// appears complete or not at all; an error of rank 0, such as a full disk, is thrown as FormatError with the same text on all
/// ranks. Returns when the file is there. The model and the states are rank 0's; those of a ShardedOptimizer are whole
/// (ShardedOptimizer::state()).
void save_checkpoint(Group& group, const std::string& path, const Checkpoint& checkpoint);

/// Reads such a file, or a plain checkpoint, on every rank: all must see the same file. Each rank gets its own generators; a
/// rank that the saved run did not have gets rank 0's with a seed of its own. So a run continues with the same number of ranks
/// as if it had never stopped, and with another number with the same weights, order of data and step. Throws FormatError, and
/// DistributedError on all ranks if their files differ.
[[nodiscard]] Checkpoint load_checkpoint(Group& group, const std::string& path);

}  // namespace polyphase::distributed
