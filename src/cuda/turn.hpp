#pragma once
// Where the work of a call of the backend goes.

#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// Makes the device current for one call, and has the stream that the call's work goes to.
struct Turn {
  explicit Turn(int device) : scope(device), stream(current_stream(device)) { refuse_other_device(device); }
  DeviceScope scope;
  cudaStream_t stream;
};

}  // namespace polyphase::cuda
