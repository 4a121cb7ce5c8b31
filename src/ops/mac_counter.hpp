#pragma once
// Counts what a network computes. Internal.

namespace polyphase::ops {

/// While alive, adds up the multiply-adds of the calling thread's convolutions, matrix products and LSTMs; inside another
/// counter that one counts nothing.
class MacCounter {
 public:
  MacCounter() : outer_(current_) { current_ = this; }
  ~MacCounter() { current_ = outer_; }
  MacCounter(const MacCounter&) = delete;
  MacCounter& operator=(const MacCounter&) = delete;

  [[nodiscard]] double count() const { return count_; }
  /// Called by operations.
  static void add(double macs) {
    if (current_ != nullptr) current_->count_ += macs;
  }

 private:
  inline static thread_local MacCounter* current_ = nullptr;
  MacCounter* outer_;
  double count_ = 0;
};

}  // namespace polyphase::ops
