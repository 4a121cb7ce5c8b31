#pragma once
// Choosing a convolution's algorithm by measuring instead of by the cost model.

namespace polyphase {

/// Whether the calling thread measures: as an AutotuneGuard says, else whether the environment variable POLYPHASE_AUTOTUNE
/// is 1. The first call of a problem then runs every algorithm that can do it a few times and waits for the device; later calls
/// use the fastest. Results are kept in the file that POLYPHASE_AUTOTUNE_CACHE names, if any. Bits may then differ from run to
/// run, as the choice may.
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
