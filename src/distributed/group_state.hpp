#pragma once
// What a Group refers to. Internal.

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "distributed/failure.hpp"
#include "distributed/group.hpp"
#include "distributed/watchdog.hpp"

namespace polyphase::distributed {

/// With one process only the place, the device and the step are used.
struct Group::State {
  Place place;
  Device device;
  std::int64_t step = 0;
  std::vector<std::string> hosts;
  std::shared_ptr<Failure> failure;
  std::shared_ptr<Communicator> host;
  std::shared_ptr<Communicator> nccl;  // of a group of GPUs
  std::unique_ptr<Watchdog> watchdog;
  std::vector<std::weak_ptr<std::function<void(std::int64_t)>>> checks;
  std::atomic<bool> stop_requested{false};
  bool watches_sigterm = false;
  int exceptions = std::uncaught_exceptions();
  mutable std::mutex mutex;  // of nccl, which the watchdog's thread looks at

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  /// Leaves the group.
  ~State();
  [[nodiscard]] bool should_stop() const;
  [[nodiscard]] Activity activity() const;
  void cancel() const;
};

}  // namespace polyphase::distributed
