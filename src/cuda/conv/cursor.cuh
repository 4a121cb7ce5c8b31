#pragma once
// Position of a kernel in its reduction.

namespace polyphase::cuda {

/// The counters of one step of gemm_k: taps advance first, then planes, then rows.
struct Cursor {
  int row = 0, plane = 0, tap = 0;
  template <class Steps>
  __device__ __forceinline__ void advance(const Steps& steps) {
    if (++tap < steps.tap_steps) return;
    tap = 0;
    if (++plane < steps.plane_steps) return;
    plane = 0;
    ++row;
  }
};

}  // namespace polyphase::cuda
