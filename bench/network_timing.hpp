#pragma once
// The time of work on a device.

#include <chrono>
#include <functional>

#include "cuda/cuda.hpp"
#include "tensor/device.hpp"

namespace polyphase::bench {

/// Microseconds of each of `count` runs one after another, from idle to idle.
inline double us_of(int count, const std::function<void()>& run, Device device) {
  using Clock = std::chrono::steady_clock;
  const auto wait = [&] {
    if (device.is_cuda()) cuda::synchronize(device.index);
  };
  wait();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < count; ++i) run();
  wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / count;
}

}  // namespace polyphase::bench
