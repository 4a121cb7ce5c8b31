#pragma once
// Finds ranks that are dead, hung or have failed, and ends all others. Internal.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/communicator.hpp"
#include "distributed/failure.hpp"
#include "distributed/network/socket.hpp"

namespace polyphase::distributed {

struct WatchdogOptions {
  int rank = 0;
  std::chrono::milliseconds timeout{30'000};
  std::vector<std::string> hosts{};  ///< the machine of every rank
  std::vector<Socket> controls{};    ///< Connections::controls
  /// What this rank does; called by the watchdog's thread.
  std::function<Activity()> activity{};
  /// Ends operations that do not look at the failure themselves; called once it is set, by a thread of its own,
  /// as it may wait.
  std::function<void()> cancel{};
  /// Whether this process shall stop.
  std::function<bool()> stop_requested{};
};

/// A thread of every rank that exchanges what the ranks do over the control connections, several times per timeout. Rank 0
/// judges:
///
/// - a connection that closes without a goodbye: that rank is dead;
/// - no word for the timeout: that rank is stopped, or its host or network is gone;
/// - an operation that lasts longer than the timeout: the ranks that have not begun it are hung.
///
/// The judgement sets the Failure of all ranks. A process whose main thread does not leave within one more timeout is ended
/// with exit code 1, after the text was written to standard error. Other ranks watch rank 0 themselves.
class Watchdog {
 public:
  Watchdog(WatchdogOptions options, std::shared_ptr<Failure> failure);
  /// Tells the others that this rank leaves, or its failure.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Counts a step, and returns whether training goes on. Waits for the ranks to agree when one shall stop.
  [[nodiscard]] bool end_step();
  [[nodiscard]] std::int64_t step() const;
  void set_step(std::int64_t step);

  class State;  // not for users

 private:
  std::unique_ptr<State> state_;
};

/// Writes the text and a new line to standard error if `should_print`, and ends the process with exit code 1, running nothing
/// else.
[[noreturn]] void end_process(const std::string& what, bool should_print) noexcept;

}  // namespace polyphase::distributed
