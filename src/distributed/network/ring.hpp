#pragma once
// A communicator of CPU tensors over TCP: every rank sends to the next and receives from the one before. Internal.

#include <memory>
#include <string>
#include <vector>

#include "distributed/communicator.hpp"
#include "distributed/failure.hpp"
#include "distributed/network/socket.hpp"

namespace polyphase::distributed {

struct RingOptions {
  int rank = 0;
  int world = 1;
  std::vector<std::string> hosts{};  ///< the machine of every rank, for errors
  Socket next{}, previous{};
};

/// Operations run one after another on a thread of the communicator. A broken connection is an error once `failure` does not
/// name another cause. Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations": each
/// rank sends 2*(world - 1)/world of the bytes.
[[nodiscard]] std::unique_ptr<Communicator> make_ring(RingOptions options, std::shared_ptr<Failure> failure);

}  // namespace polyphase::distributed
