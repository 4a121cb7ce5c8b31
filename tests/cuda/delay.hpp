#pragma once
// Delays a stream, so that a missing wait for the stream is detected.

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "cuda/runtime/runtime.hpp"

namespace polyphase::testing {

/// Work that is added to the stream after it begins 20 ms later. The GPU is free in the meantime, and other streams continue.
class Delay {
 public:
  explicit Delay(cudaStream_t stream) {
    auto mine = std::make_unique<Flag>(over_);
    CHECK_CUDA(cudaLaunchHostFunc(stream, run, mine.get()));
    (void)mine.release();  // run()'s now
  }
  /// Whether the delay is over.
  [[nodiscard]] bool over() const { return *over_; }

 private:
  using Flag = std::shared_ptr<std::atomic<bool>>;
  static void CUDART_CB run(void* data) {
    const std::unique_ptr<Flag> over(static_cast<Flag*>(data));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    **over = true;
  }
  Flag over_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace polyphase::testing
