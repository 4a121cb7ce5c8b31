#pragma once
// The failure of a job, as one rank knows it. Internal.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace polyphase::distributed {

/// Is set once, by the first thread that learns what is wrong; everything that waits then ends with the same text.
class Failure {
 public:
  Failure();
  ~Failure();
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;

  [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }
  /// Keeps the first text. `should_print`: as in DistributedError.
  void set(const std::string& what, bool should_print);
  /// Throws DistributedError if it is set.
  void check() const;
  /// For a thread that sees an effect whose cause another one will name: waits for the cause, at most `patience`, then sets
  /// `what`, and throws DistributedError.
  [[noreturn]] void raise(const std::string& what, std::chrono::milliseconds patience);
  /// Something that may explain a later failure: added to the texts of raise() and with_notes().
  void add_note(const std::string& note);
  [[nodiscard]] std::string with_notes(const std::string& what) const;
  /// A descriptor that poll() finds readable once it is set.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] std::string what() const;
  [[nodiscard]] bool should_print() const;

 private:
  std::atomic<bool> is_set_{false};
  int descriptor_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string what_;
  std::string notes_;
  bool should_print_ = false;
};

}  // namespace polyphase::distributed
