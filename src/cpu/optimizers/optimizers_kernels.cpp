// SGD and Adam over contiguous elements, one pass, memory bound. An ISA source: see the rules in cpu/isa_target.hpp.
//
// A vector body and a scalar body have the same operations in the same order, so that an element's bits do not depend on its
// place.

#include "cpu/optimizers/optimizers_kernels.hpp"

#include "cpu/elementwise/elementwise_math.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

POLYPHASE_INLINE float root(float x) { return __builtin_sqrtf(x); }
POLYPHASE_INLINE double root(double x) { return __builtin_sqrt(x); }
POLYPHASE_INLINE F32 root(F32 x) { return sqrt(x); }
POLYPHASE_INLINE F64 root(F64 x) { return sqrt(x); }

// V is T or a vector of T, at the same place of every array.
template <class V>
POLYPHASE_INLINE V get(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class V>
POLYPHASE_INLINE void put(void* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

template <class V, class T>
POLYPHASE_INLINE void sgd_at(T* parameter, const T* grad, T* velocity, const SgdCoefficients& step) {
  const V w = get<V>(parameter);
  V g = get<V>(grad);
  if (step.weight_decay != 0) g = g + static_cast<T>(step.weight_decay) * w;
  if (velocity != nullptr) {
    const T momentum = static_cast<T>(step.momentum);
    const V v = step.first ? g : momentum * get<V>(velocity) + static_cast<T>(step.gradient_weight) * g;
    put(velocity, v);
    g = step.nesterov ? g + momentum * v : v;
  }
  put(parameter, w - static_cast<T>(step.learning_rate) * g);
}

template <class V, class T>
POLYPHASE_INLINE void adam_at(T* parameter, const T* grad, T* momentum, T* second, const AdamCoefficients& step) {
  const V old = get<V>(parameter);
  V g = get<V>(grad);
  if (step.weight_decay != 0) g = g + static_cast<T>(step.weight_decay) * old;
  const V w = static_cast<T>(step.parameter_factor) * old;
  const V before = get<V>(momentum);
  const V m = before + static_cast<T>(step.one_minus_beta1) * (g - before);
  const V v = static_cast<T>(step.beta2) * get<V>(second) + static_cast<T>(step.one_minus_beta2) * g * g;
  put(momentum, m);
  put(second, v);
  const V denominator = root(v) / static_cast<T>(step.root_correction) + static_cast<T>(step.epsilon);
  put(parameter, w - static_cast<T>(step.step_size) * (m / denominator));
}

template <class T>
void sgd(T* parameter, const T* grad, T* velocity, std::int64_t count, const SgdCoefficients& step) {
  std::int64_t i = 0;
  const auto at = [&](std::int64_t j) { return velocity == nullptr ? nullptr : velocity + j; };
  for (; i + kLanes<T> <= count; i += kLanes<T>) sgd_at<Vector<T>>(parameter + i, grad + i, at(i), step);
  for (; i < count; ++i) sgd_at<T>(parameter + i, grad + i, at(i), step);
}

template <class T>
void adam(T* parameter, const T* grad, T* momentum, T* second, std::int64_t count, const AdamCoefficients& step) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) adam_at<Vector<T>>(parameter + i, grad + i, momentum + i, second + i, step);
  for (; i < count; ++i) adam_at<T>(parameter + i, grad + i, momentum + i, second + i, step);
}

constexpr OptimizerKernels kKernels = {{sgd<float>, adam<float>}, {sgd<double>, adam<double>}};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const OptimizerKernels& optimizer_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
