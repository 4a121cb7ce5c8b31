#pragma once
// The inner loops of optimizer steps, per instruction set. Internal to the library.

#include <cstdint>

#include "cpu/isa.hpp"

namespace polyphase::cpu {

/// The coefficients of a step, computed in double from everything that does not depend on the element.
struct SgdCoefficients {
  double learning_rate, momentum, gradient_weight, weight_decay;  ///< gradient_weight: 1 - dampening, in front of g in velocity
  bool nesterov, first;
};
struct AdamCoefficients {
  double beta2, one_minus_beta1, one_minus_beta2, epsilon;
  double step_size;         ///< learning rate / (1 - beta1^t)
  double root_correction;   ///< sqrt(1 - beta2^t)
  double weight_decay;      ///< coupled: added to the gradient
  double parameter_factor;  ///< decoupled: 1 - learning rate * decay; else 1
};

/// `velocity` may be null if there is no momentum.
template <class T>
struct OptimizerFunctions {
  void (*sgd)(T* parameter, const T* grad, T* velocity, std::int64_t count, const SgdCoefficients& step);
  void (*adam)(T* parameter, const T* grad, T* momentum, T* second, std::int64_t count, const AdamCoefficients& step);
};

struct OptimizerKernels {
  OptimizerFunctions<float> f32;
  OptimizerFunctions<double> f64;
};

template <Isa isa>
const OptimizerKernels& optimizer_kernels();

#ifndef POLYPHASE_ISA  // for callers, not for kernel sources
inline const OptimizerKernels& optimizer_kernels() {
  return dispatch_isa([](auto tag) -> const OptimizerKernels& { return optimizer_kernels<tag.value>(); });
}
#endif

}  // namespace polyphase::cpu
