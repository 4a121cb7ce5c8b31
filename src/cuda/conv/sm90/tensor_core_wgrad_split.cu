#include "cuda/conv/sm90/tensor_core_wgrad_launch.cuh"

namespace polyphase::cuda::tensor_core {

void wgrad_split(const WgradCall& call) {
  const WgradSteps steps = wgrad_steps_of<WgradSplit>(call);
  if (steps.parts == 2) return launch_wgrad<WgradSplit>(call, steps);
  WgradCall own = call;
  own.steps = &steps;
  wgrad_long(own);
}

}  // namespace polyphase::cuda::tensor_core
