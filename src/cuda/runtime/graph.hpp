#pragma once
// What device code and the backend need to know about a capture. Internal; no CUDA headers.

#include <cstdint>
#include <functional>
#include <memory>

#include "cuda/cuda.hpp"
#include "tensor/random.hpp"

namespace polyphase::cuda {

/// The values that change from one replay to the next; in device memory, written before each replay.
struct ReplayState {
  std::uint64_t seed;
  std::uint64_t offset;  ///< added to a recorded generator offset, modulo 2^64
};

/// Null if the calling thread does not capture on `device`; else the state that recorded kernels read, valid as long as the
/// graph.
[[nodiscard]] const ReplayState* replay_state(int device);
/// The same for a kernel that draws random numbers from `state`. Throws DeviceError if it is not the default generator's.
[[nodiscard]] const ReplayState* replay_state(int device, const GeneratorState& state);

/// Throws DeviceError if the calling thread captures: `operation` waits for the device and cannot be recorded.
void refuse_capture(const char* operation);
/// Throws DeviceError if the calling thread captures on another device: work on `device` would run now instead of being
/// recorded.
void refuse_other_device(int device);

/// In capture(): has `work` called on the host before each replay, including the first and after on_replay's updates, with the
/// stream of the replay. Elsewhere it does nothing.
void before_replay(std::function<void(CUstream_st* stream)> work);

/// In capture(): keeps `owned` until the recording ends. Elsewhere it does nothing.
void keep_while_capturing(std::shared_ptr<void> owned);

/// *state = value, on the device.
void set_replay_state(ReplayState* state, const ReplayState& value, CUstream_st* stream);

}  // namespace polyphase::cuda
