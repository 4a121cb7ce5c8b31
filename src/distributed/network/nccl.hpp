#pragma once
// A communicator of one GPU per process over NVIDIA's NCCL, which is loaded at run time. Internal.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "distributed/communicator.hpp"
#include "distributed/failure.hpp"

namespace polyphase::distributed {

struct NcclOptions {
  int rank = 0;
  int world = 1;
  Device device{};
  std::chrono::milliseconds timeout{30'000};
  std::vector<std::string> hosts{};
};

/// Loads POLYPHASE_NCCL or libnccl.so.2 (2.14 or newer) and connects the GPUs; `host` carries rank 0's id to the others. Ring,
/// Simple and no NVLink multicast are set in the environment unless it says otherwise (NCCL_ALGO, NCCL_PROTO,
/// NCCL_NVLS_ENABLE), so that every run has the same bits. Operations run on one stream of high priority; wait() lets the
/// current stream wait, never the host, and all of it may be recorded by cuda::capture; destroy such a graph before the
/// communicator, whose destructor waits for it. Throws DistributedError if NCCL is
/// missing or does not connect within the timeout.
[[nodiscard]] std::unique_ptr<Communicator> make_nccl(const NcclOptions& options, Communicator& host,
                                                      std::shared_ptr<Failure> failure);

}  // namespace polyphase::distributed
