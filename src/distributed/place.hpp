#pragma once
// Which process of a job this one is, as its launcher says.

#include <functional>
#include <optional>
#include <string>

namespace polyphase::distributed {

/// The place of a process in its job.
struct Place {
  int rank = 0;        ///< 0 to world - 1
  int world = 1;       ///< number of processes
  int local_rank = 0;  ///< among the processes of this host: the index of its GPU
  /// "POLYPHASE_RANK", "torchrun", "Open MPI", "MPICH" or "Slurm"; empty without a launcher.
  std::string launcher{};
  /// Where the processes meet: "HOST:PORT", the path of a file that all can reach (it contains a '/'), or empty: rank 0
  /// tells its address through MPI.
  std::string address{};
  /// HOST:PORT belongs to the launcher, or to other jobs as well: rank 0 listens at one of the ports behind it.
  bool derive_port = false;
  /// Different for every job and every restart of one; processes of another job are rejected.
  std::string job{};
};

/// Reads a variable of the environment; none if it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

/// The place of this process. The first launcher whose rank variable is set counts:
///
/// | launcher | rank, world, local rank | meeting point |
/// |---|---|---|
/// | by hand | POLYPHASE_RANK, POLYPHASE_WORLD, POLYPHASE_LOCAL_RANK (rank) | POLYPHASE_ADDRESS |
/// | torchrun, Kubeflow, Ray | RANK, WORLD_SIZE, LOCAL_RANK | behind MASTER_ADDR:MASTER_PORT, which torchrun itself may own |
/// | Open MPI | OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK | through MPI |
/// | MPICH, Intel MPI | PMI_RANK, PMI_SIZE, MPI_LOCALRANKID | through MPI |
/// | Slurm (PMIx too) | SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID | the first host of SLURM_STEP_NODELIST |
///
/// POLYPHASE_ADDRESS replaces every meeting point. Without any of them the place is rank 0 of 1. SLURM_PROCID counts only with
/// more than one task. Throws DistributedError naming the variable that is missing or does not fit.
[[nodiscard]] Place find_place();
[[nodiscard]] Place find_place(const ReadVariable& read);

}  // namespace polyphase::distributed
