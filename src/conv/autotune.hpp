#pragma once
// Chooses a convolution's algorithm by measuring instead of by the cost model.

namespace polyphase {

/// Whether the calling thread measures: as set by an AutotuneGuard, else whether the environment variable POLYPHASE_AUTOTUNE is
/// 1. The first call of a problem then runs every algorithm that can compute it a few times and waits for the device; later
/// calls use the fastest. Results are stored in the file named by POLYPHASE_AUTOTUNE_CACHE, if set. The choice, and with it the
/// bits, may differ from run to run.
[[nodiscard]] bool autotune_enabled();

/// Turns measuring on or off for the calling thread until the end of the scope.
class AutotuneGuard {
 public:
  explicit AutotuneGuard(bool enabled);
  ~AutotuneGuard();
  AutotuneGuard(const AutotuneGuard&) = delete;
  AutotuneGuard& operator=(const AutotuneGuard&) = delete;

 private:
  int previous_;
};

}  // namespace polyphase
