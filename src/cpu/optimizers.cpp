#include "cpu/optimizers.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/elementwise_loop.hpp"
#include "cpu/optimizers_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

// Calls step(slot, first element, count) for parts of all slots that together are every element once, shared between threads as
// one long row.
template <class Step>
void for_all_elements(std::span<const OptimizerSlot> slots, const Step& step) {
  std::vector<std::int64_t> ends;
  std::int64_t total = 0;
  for (const OptimizerSlot& slot : slots) ends.push_back(total += slot.parameter.numel());
  parallel_for(total, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    auto i = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (; begin < end; ++i) {
      const std::int64_t first = ends[i] - slots[i].parameter.numel();
      const std::int64_t stop = std::min(end, ends[i]);
      if (stop > begin) step(slots[i], begin - first, stop - begin);
      begin = std::max(begin, stop);
    }
  });
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

}  // namespace

void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step) {
  require_supported("sgd_step", slots);
  const SgdCoefficients coefficients{step.learning_rate, step.momentum, 1 - step.dampening,
                                     step.weight_decay,  step.nesterov, step.first};
  const OptimizerKernels& kernels = optimizer_kernels();
  for_all_elements(slots, [&](const OptimizerSlot& slot, std::int64_t first, std::int64_t count) {
    if (slot.parameter.dtype() == DType::f64) return sgd_part(kernels.f64, slot, first, count, coefficients);
    sgd_part(kernels.f32, slot, first, count, coefficients);
  });
}

void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step) {
  require_supported("adam_step", slots);
  const auto t = static_cast<double>(step.step);
  AdamCoefficients coefficients{};
  coefficients.beta2 = step.beta2;
  coefficients.one_minus_beta1 = 1 - step.beta1;
  coefficients.one_minus_beta2 = 1 - step.beta2;
  coefficients.epsilon = step.epsilon;
  coefficients.step_size = step.learning_rate / (1 - std::pow(step.beta1, t));
  coefficients.root_correction = std::sqrt(1 - std::pow(step.beta2, t));
  coefficients.weight_decay = step.decoupled ? 0 : step.weight_decay;
  coefficients.parameter_factor = step.decoupled ? 1 - step.learning_rate * step.weight_decay : 1;
  const OptimizerKernels& kernels = optimizer_kernels();
  for_all_elements(slots, [&](const OptimizerSlot& slot, std::int64_t first, std::int64_t count) {
    if (slot.parameter.dtype() == DType::f64) return adam_part(kernels.f64, slot, first, count, coefficients);
    adam_part(kernels.f32, slot, first, count, coefficients);
  });
}

}  // namespace polyphase::cpu
