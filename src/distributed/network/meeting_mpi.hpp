#pragma once
// MPI, only to tell all ranks where rank 0 listens. The library is loaded at run time. Internal.

#include <string>

namespace polyphase::distributed {

/// The text that rank 0 of MPI_COMM_WORLD passes, at most 1000 bytes, on all ranks. Starts MPI and, before it returns, ends it:
/// MPI cannot be used again in this process. If the program has started MPI itself, it is left as it is. The library is
/// POLYPHASE_MPI, else libmpi.so.40 (Open MPI), libmpi.so.12 (MPICH, Intel MPI) or libmpi.so. Throws DistributedError if there
/// is none, or MPI has another rank or world than the launcher's variables.
[[nodiscard]] std::string broadcast_by_mpi(const std::string& text, int rank, int world);

}  // namespace polyphase::distributed
