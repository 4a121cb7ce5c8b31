// One store. The values are kernel arguments, so the host need not keep them.
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

__global__ void store_replay_state(ReplayState* state, ReplayState value) { *state = value; }

}  // namespace

void set_replay_state(ReplayState* state, const ReplayState& value, cudaStream_t stream) {
  store_replay_state<<<1, 1, 0, stream>>>(state, value);
  check_launch("store_replay_state");
}

}  // namespace polyphase::cuda
