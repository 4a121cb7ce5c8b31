// All parameters of one dtype in one launch, memory bound: SGD reads and writes 12 to 20 bytes per f32 element, Adam 28.
//
// A launch before it counts the step. Each block reads its parameter's count and the learning rate from the device, so that a
// step recorded in a graph keeps counting and follows the rate. It also reads the skip flag there, so that a step with bad
// gradients is skipped without the host.
// Adam's bias corrections are computed by exactly rounded products and square roots, so that they have the same bits for a
// count on the CPU and the GPU.

#include "cuda/optimizers/optimizers.hpp"

#include <new>
#include <utility>
#include <vector>

#include "cuda/kernel/table.cuh"
#include "cuda/optimizers/optimizers_lists.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

struct SlotRow {
  void* parameter;
  const void* grad;
  void* momentum;  // null: none
  void* second;
  std::int64_t count;
  std::uint32_t index;  // of its step count
};
/// The values that every kernel of a step reads from the device.
struct Control {
  const double* learning_rate;
  const std::int64_t* counts;
  const double* skip;  // null: never
  std::int64_t chunk;  // elements per block
};
struct SgdCoefficients {
  Control control;
  double momentum, gradient_weight, weight_decay;
  bool nesterov;
};
struct AdamCoefficients {
  Control control;
  double beta1, beta2, epsilon, weight_decay;
  bool decoupled;
};

/// base^exponent by squaring: the same bits on the host and the device.
__device__ double integer_power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base = __dmul_rn(base, base))
    if (exponent % 2 != 0) result = __dmul_rn(result, base);
  return result;
}

template <class A>
struct SgdRule {
  A learning_rate, momentum, gradient_weight, weight_decay;
  bool nesterov, first;
  __device__ SgdRule(const SgdCoefficients& c, std::int64_t t)
      : learning_rate(static_cast<A>(*c.control.learning_rate)),
        momentum(static_cast<A>(c.momentum)),
        gradient_weight(static_cast<A>(c.gradient_weight)),
        weight_decay(static_cast<A>(c.weight_decay)),
        nesterov(c.nesterov),
        first(t == 1) {}
  __device__ void operator()(A& w, A g, A& velocity, A&, bool has_velocity) const {
    if (weight_decay != A(0)) g += weight_decay * w;
    if (has_velocity) {
      velocity = first ? g : momentum * velocity + gradient_weight * g;
      g = nesterov ? g + momentum * velocity : velocity;
    }
    w -= learning_rate * g;
  }
};

template <class A>
struct AdamRule {
  A beta2, one_minus_beta1, one_minus_beta2, epsilon, step_size, root_correction, weight_decay, parameter_factor;
  __device__ AdamRule(const AdamCoefficients& c, std::int64_t t) {
    const double learning_rate = *c.control.learning_rate;
    beta2 = static_cast<A>(c.beta2);
    one_minus_beta1 = static_cast<A>(1 - c.beta1);
    one_minus_beta2 = static_cast<A>(1 - c.beta2);
    epsilon = static_cast<A>(c.epsilon);
    step_size = static_cast<A>(learning_rate / (1 - integer_power(c.beta1, t)));
    root_correction = static_cast<A>(sqrt(1 - integer_power(c.beta2, t)));
    weight_decay = static_cast<A>(c.decoupled ? 0 : c.weight_decay);
    parameter_factor = static_cast<A>(c.decoupled ? 1 - __dmul_rn(learning_rate, c.weight_decay) : 1);
  }
  __device__ void operator()(A& w, A g, A& m, A& v, bool) const {
    if (weight_decay != A(0)) g += weight_decay * w;
    m += one_minus_beta1 * (g - m);
    v = beta2 * v + one_minus_beta2 * g * g;
    w = parameter_factor * w - step_size * (m / (sqrt(v) / root_correction + epsilon));
  }
};

template <class T, int kPack, class Rule>
__device__ __forceinline__ void update_pack(const Rule& rule, T* parameter, const T* grad, T* momentum, T* second) {
  using A = MathOf<T>;
  using P = Pack<T, kPack>;
  P w = *reinterpret_cast<const P*>(parameter), m{}, v{};
  const P g = *reinterpret_cast<const P*>(grad);
  if (momentum != nullptr) m = *reinterpret_cast<const P*>(momentum);
  if (second != nullptr) v = *reinterpret_cast<const P*>(second);
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    A wi = convert<A>(w.at[i]), mi = convert<A>(m.at[i]), vi = convert<A>(v.at[i]);
    rule(wi, convert<A>(g.at[i]), mi, vi, momentum != nullptr);
    w.at[i] = convert<T>(wi), m.at[i] = convert<T>(mi), v.at[i] = convert<T>(vi);
  }
  *reinterpret_cast<P*>(parameter) = w;
  if (momentum != nullptr) *reinterpret_cast<P*>(momentum) = m;
  if (second != nullptr) *reinterpret_cast<P*>(second) = v;
}

template <class T, class Rule, class Step>
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ Table<SlotRow, Step> table) {
  const Control& control = table.step.control;
  if (control.skip != nullptr && *control.skip != 0) return;
  const int row = row_of_block(table);
  const SlotRow& slot = table.row[row];
  __shared__ alignas(Rule) unsigned char shared[sizeof(Rule)];  // (1) Rule
  if (threadIdx.x == 0) new (shared) Rule(table.step, control.counts[slot.index]);
  __syncthreads();
  const Rule rule = *reinterpret_cast<const Rule*>(shared);
  const auto [start, count] = chunk_of_block(table, row, control.chunk);
  auto* parameter = static_cast<T*>(slot.parameter) + start;
  const auto* grad = static_cast<const T*>(slot.grad) + start;
  auto* momentum = slot.momentum == nullptr ? nullptr : static_cast<T*>(slot.momentum) + start;
  auto* second = slot.second == nullptr ? nullptr : static_cast<T*>(slot.second) + start;
  const auto addresses = address_bits(parameter) | address_bits(grad) | address_bits(momentum) | address_bits(second);
  visit_chunk<T>(addresses, count, [&](auto width, int i) {
    const auto at = [i](T* array) { return array == nullptr ? nullptr : array + i; };
    update_pack<T, decltype(width)::value>(rule, parameter + i, grad + i, at(momentum), at(second));
  });
}

void* address(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

Control control_of(const StepControl& control) {
  return {control.learning_rate.data<double>(), control.counts.data<std::int64_t>(),
          control.skip.defined() ? control.skip.data<double>() : nullptr, kChunk};
}

void count_step(std::span<const OptimizerSlot> slots, const StepControl& control, cudaStream_t stream) {
  std::vector<std::int64_t> indices;
  for (const OptimizerSlot& slot : slots) indices.push_back(slot.index);
  if (control.total >= 0) indices.push_back(control.total);
  advance_counts(control.counts.data<std::int64_t>(), indices, control_of(control).skip, stream);
}

/// Small models get smaller chunks, so that more of the GPU takes part.
std::int64_t chunk_of(const std::vector<SlotRow>& rows) {
  constexpr std::int64_t kSmall = 1 << 20;
  std::int64_t elements = 0;
  for (const SlotRow& row : rows) elements += row.count;
  return elements <= kSmall ? kChunk / 4 : kChunk;
}

template <template <class> class Rule, class Step>
void launch_all(const char* name, std::span<const OptimizerSlot> slots, Step step, const StepControl& control,
                bool with_momentum, bool with_second, cudaStream_t stream) {
  bool counted = false;
  const auto dtype_of_slot = [&](std::size_t i) { return slots[i].parameter.dtype(); };
  for_each_floating_type(name, slots.size(), dtype_of_slot, [&]<class T>(T) {
    if (!std::exchange(counted, true)) count_step(slots, control, stream);
    std::vector<SlotRow> rows;
    for (const OptimizerSlot& slot : slots) {
      if (slot.parameter.dtype() != dtype_of_element<T>) continue;
      rows.push_back({slot.parameter.raw(), slot.grad.raw(), with_momentum ? address(slot.momentum) : nullptr,
                      with_second ? address(slot.second) : nullptr, slot.parameter.numel(),
                      static_cast<std::uint32_t>(slot.index)});
    }
    step.control.chunk = chunk_of(rows);
    const auto issue = [&](const Table<SlotRow, Step>& table, std::uint32_t blocks) {
      step_kernel<T, Rule<MathOf<T>>><<<blocks, kThreads, 0, stream>>>(table);
      check_launch(name);
    };
    for_each_table(std::span<const SlotRow>(rows), step, issue, step.control.chunk);
  });
}

}  // namespace

void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, const StepControl& control, cudaStream_t stream) {
  const SgdCoefficients coefficients{control_of(control), step.momentum, 1 - step.dampening, step.weight_decay, step.nesterov};
  launch_all<SgdRule>("sgd_step", slots, coefficients, control, step.momentum != 0, false, stream);
}

void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, const StepControl& control, cudaStream_t stream) {
  const AdamCoefficients coefficients{control_of(control), step.beta1,        step.beta2,
                                      step.epsilon,        step.weight_decay, step.decoupled};
  launch_all<AdamRule>("adam_step", slots, coefficients, control, true, true, stream);
}

}  // namespace polyphase::cuda
