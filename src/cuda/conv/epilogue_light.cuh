#pragma once
// Epilogues that are a few instructions on a number in a register: ReLU or LeakyReLU and nothing else.

#include "cuda/conv/epilogue.cuh"

namespace polyphase::cuda {

/// The words of Epilogue::apply() for float, with what it looks at in registers.
struct LightActivation {
  bool is_there, is_relu;
  float slope;
  __device__ __forceinline__ explicit LightActivation(const Epilogue& epilogue)
      : is_there(!epilogue.is_late() &&
                 (epilogue.activation == Activation::relu || epilogue.activation == Activation::leaky_relu)),
        is_relu(epilogue.activation == Activation::relu),
        slope(static_cast<float>(epilogue.slope)) {}
  __device__ __forceinline__ float operator()(float value) const {
    return value < 0.0F ? (is_relu ? 0.0F : slope * value) : value;
  }
};

}  // namespace polyphase::cuda
