#pragma once
// A stream that is late, so that whoever should wait for it and does not is found out.

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "cuda/runtime/runtime.hpp"

namespace polyphase::testing {

/// What the stream is given behind it begins 20 ms later. The GPU is free meanwhile, and other streams go on.
class Delay {
 public:
  explicit Delay(cudaStream_t stream) {
    auto mine = std::make_unique<Flag>(over_);
    CHECK_CUDA(cudaLaunchHostFunc(stream, run, mine.get()));
    (void)mine.release();  // run()'s now
  }
  /// Whether it is past.
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
