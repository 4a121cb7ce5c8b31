#include "cpu/optimizers/optimizers.hpp"

#include <cmath>
#include <vector>

#include "cpu/optimizers/optimizers_elements.hpp"
#include "cpu/optimizers/optimizers_kernels.hpp"

namespace polyphase::cpu {
namespace {

std::vector<std::int64_t> sizes_of(std::span<const OptimizerSlot> slots) {
  std::vector<std::int64_t> sizes;
  for (const OptimizerSlot& slot : slots) sizes.push_back(slot.parameter.numel());
  return sizes;
}

bool skipped(const StepControl& control) { return control.skip.defined() && *control.skip.data<double>() != 0; }

// Counts the step. Returns each slot's step number, from 1.
std::vector<std::int64_t> advance(std::span<const OptimizerSlot> slots, const StepControl& control) {
  auto* const counts = control.counts.data<std::int64_t>();
  if (control.total >= 0) ++counts[control.total];
  std::vector<std::int64_t> steps;
  for (const OptimizerSlot& slot : slots) steps.push_back(++counts[slot.index]);
  return steps;
}

template <class T>
T* from(const Tensor& tensor, std::int64_t first) {
  return tensor.defined() ? tensor.data<T>() + first : nullptr;
}

void require_supported(const char* operation, std::span<const OptimizerSlot> slots) {
  for (const OptimizerSlot& slot : slots)
    require<DTypeError>(slot.parameter.dtype() == DType::f32 || slot.parameter.dtype() == DType::f64, operation,
                        ": expected parameters of f32 or f64, got ", slot.parameter.dtype());
}

template <class T>
void sgd_part(const OptimizerFunctions<T>& functions, const OptimizerSlot& slot, std::int64_t first, std::int64_t count,
              const SgdCoefficients& step) {
  T* velocity = step.momentum == 0 ? nullptr : from<T>(slot.momentum, first);
  functions.sgd(from<T>(slot.parameter, first), from<T>(slot.grad, first), velocity, count, step);
}

template <class T>
void adam_part(const OptimizerFunctions<T>& functions, const OptimizerSlot& slot, std::int64_t first, std::int64_t count,
               const AdamCoefficients& step) {
  functions.adam(from<T>(slot.parameter, first), from<T>(slot.grad, first), from<T>(slot.momentum, first),
                 from<T>(slot.second, first), count, step);
}

AdamCoefficients adam_coefficients(const AdamStep& step, double learning_rate, std::int64_t count) {
  const auto t = static_cast<double>(count);
  AdamCoefficients coefficients{};
  coefficients.beta2 = step.beta2;
  coefficients.one_minus_beta1 = 1 - step.beta1;
  coefficients.one_minus_beta2 = 1 - step.beta2;
  coefficients.epsilon = step.epsilon;
  coefficients.step_size = learning_rate / (1 - std::pow(step.beta1, t));
  coefficients.root_correction = std::sqrt(1 - std::pow(step.beta2, t));
  coefficients.weight_decay = step.decoupled ? 0 : step.weight_decay;
  coefficients.parameter_factor = step.decoupled ? 1 - learning_rate * step.weight_decay : 1;
  return coefficients;
}

}  // namespace

void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control) {
  require_supported("sgd_step", slots);
  if (skipped(control)) return;
  const std::vector<std::int64_t> steps = advance(slots, control);
  const double learning_rate = *control.learning_rate.data<double>();
  const OptimizerKernels& kernels = optimizer_kernels();
  for_all_elements(sizes_of(slots), [&](std::size_t i, std::int64_t first, std::int64_t count) {
    const SgdCoefficients coefficients{learning_rate,     step.momentum, 1 - step.dampening,
                                       step.weight_decay, step.nesterov, steps[i] == 1};
    if (slots[i].parameter.dtype() == DType::f64) return sgd_part(kernels.f64, slots[i], first, count, coefficients);
    sgd_part(kernels.f32, slots[i], first, count, coefficients);
  });
}

void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control) {
  require_supported("adam_step", slots);
  if (skipped(control)) return;
  const std::vector<std::int64_t> steps = advance(slots, control);
  const double learning_rate = *control.learning_rate.data<double>();
  const OptimizerKernels& kernels = optimizer_kernels();
  for_all_elements(sizes_of(slots), [&](std::size_t i, std::int64_t first, std::int64_t count) {
    const AdamCoefficients coefficients = adam_coefficients(step, learning_rate, steps[i]);
    if (slots[i].parameter.dtype() == DType::f64) return adam_part(kernels.f64, slots[i], first, count, coefficients);
    adam_part(kernels.f32, slots[i], first, count, coefficients);
  });
}

}  // namespace polyphase::cpu
