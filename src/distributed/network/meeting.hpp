#pragma once
// How the processes of a job find and connect to each other. Internal.

#include <chrono>
#include <string>
#include <vector>

#include "distributed/network/socket.hpp"
#include "distributed/place.hpp"

namespace polyphase::distributed {

/// The connections of one rank after the meeting.
struct Connections {
  std::vector<std::string> hosts;  ///< the machine of every rank
  /// On rank 0 one to each other rank, by rank (the first is empty); elsewhere only the first, to rank 0.
  std::vector<Socket> controls;
  Socket next, previous;  ///< to rank + 1 and rank - 1, modulo world
};

/// Meets the other ranks of `place` (world > 1): all come to rank 0, which checks that they fit and tells every rank the
/// address of the next. `settings` must be the same on all ranks. Throws DistributedError naming the ranks that did not come in
/// time, came twice or do not fit, or the port in use; on all ranks that have come.
[[nodiscard]] Connections meet(const Place& place, const std::string& settings, std::chrono::milliseconds timeout);

/// The ports at which rank 0 may listen, in the order of trying: `port` itself, or a few behind it that depend on the job.
[[nodiscard]] std::vector<int> candidate_ports(int port, bool derive_port, const std::string& job);

}  // namespace polyphase::distributed
