#pragma once
// What device code and the backend must know of a capture. Internal; no CUDA headers.

#include <cstdint>
#include <functional>

#include "cuda/cuda.hpp"
#include "tensor/random.hpp"

namespace polyphase::cuda {

/// What changes from one replay to the next; in device memory, written before each replay.
struct ReplayState {
  std::uint64_t seed;
  std::uint64_t offset;  ///< to be added to a recorded generator offset, modulo 2^64
};

/// Null where the calling thread does not capture on `device`; else what recorded kernels read, for as long as the graph lives.
[[nodiscard]] const ReplayState* replay_state(int device);
/// The same for a kernel that draws random numbers from `state`. Throws DeviceError where that is not the default generator's.
[[nodiscard]] const ReplayState* replay_state(int device, const GeneratorState& state);

/// Throws DeviceError where the calling thread captures: `operation` waits for the device, so that it cannot be recorded.
void refuse_capture(const char* operation);
/// Throws DeviceError where the calling thread captures on another device: work on `device` would run now, and not be recorded.
void refuse_other_device(int device);

/// In capture(): has `work` called on the host before each replay, the first too and after on_replay's updates, with the stream
/// that the replay is about to go to. Elsewhere it does nothing.
void before_replay(std::function<void(CUstream_st* stream)> work);

/// *state = value, on the device.
void set_replay_state(ReplayState* state, const ReplayState& value, CUstream_st* stream);

}  // namespace polyphase::cuda
