// All parameters of one dtype in one launch, memory bound: SGD reads and writes 12 to 20 bytes an f32 element, Adam 28.
//
// The table of pointers travels as the kernel's parameter (below 4 KB). A block owns kChunk elements of one slot, found by
// bisection over the slots' first blocks; 16 bytes an access where all arrays of the slot are aligned.
// Adam's bias corrections come from the step count on the device, by products and square roots that are exactly rounded there
// and here, so that a recorded step that counts its replays gives the bits of an eager one.

#include "cuda/optimizers.hpp"

#include <algorithm>
#include <vector>

#include "cuda/elements.cuh"
#include "cuda/graph.hpp"
#include "cuda/runtime.hpp"
#include "cuda/strided.cuh"

namespace polyphase::cuda {
namespace {

constexpr int kSlots = 90;             // of one launch: 90 * 40 bytes and the coefficients
constexpr std::int64_t kChunk = 4096;  // elements of a block

struct Slot {
  void* parameter;
  const void* grad;
  void* momentum;  // null: none
  void* second;
  std::int64_t count;
};
template <class Step>
struct StepLaunch {
  Slot slot[kSlots];
  std::uint32_t first_block[kSlots];  // ascending
  int slots;
  Step step;
};

struct SgdCoefficients {
  double learning_rate, momentum, gradient_weight, weight_decay;
  bool nesterov, first;
};
struct AdamCoefficients {
  double learning_rate, beta1, beta2, epsilon, weight_decay, parameter_factor;
  std::int64_t step;
  const ReplayState* replay;
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
  __device__ explicit SgdRule(const SgdCoefficients& c)
      : learning_rate(static_cast<A>(c.learning_rate)),
        momentum(static_cast<A>(c.momentum)),
        gradient_weight(static_cast<A>(c.gradient_weight)),
        weight_decay(static_cast<A>(c.weight_decay)),
        nesterov(c.nesterov),
        first(c.first) {}
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
  __device__ explicit AdamRule(const AdamCoefficients& c) {
    const std::int64_t t = c.step + (c.replay == nullptr ? 0 : static_cast<std::int64_t>(c.replay->replays));
    beta2 = static_cast<A>(c.beta2);
    one_minus_beta1 = static_cast<A>(1 - c.beta1);
    one_minus_beta2 = static_cast<A>(1 - c.beta2);
    epsilon = static_cast<A>(c.epsilon);
    step_size = static_cast<A>(c.learning_rate / (1 - integer_power(c.beta1, t)));
    root_correction = static_cast<A>(sqrt(1 - integer_power(c.beta2, t)));
    weight_decay = static_cast<A>(c.weight_decay);
    parameter_factor = static_cast<A>(c.parameter_factor);
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
__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ StepLaunch<Step> launch) {
  constexpr int kPack = 16 / sizeof(T);
  __shared__ alignas(Rule) unsigned char shared[sizeof(Rule)];  // (1) Rule
  if (threadIdx.x == 0) new (shared) Rule(launch.step);
  __syncthreads();
  const Rule rule = *reinterpret_cast<const Rule*>(shared);
  int low = 0, high = launch.slots - 1;  // the last slot whose first block is not past this one
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (launch.first_block[middle] <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  const Slot& slot = launch.slot[low];
  const std::int64_t start = (blockIdx.x - launch.first_block[low]) * kChunk;
  const int count = static_cast<int>(min(kChunk, slot.count - start));
  auto* parameter = static_cast<T*>(slot.parameter) + start;
  const auto* grad = static_cast<const T*>(slot.grad) + start;
  auto* momentum = slot.momentum == nullptr ? nullptr : static_cast<T*>(slot.momentum) + start;
  auto* second = slot.second == nullptr ? nullptr : static_cast<T*>(slot.second) + start;
  const auto bits = reinterpret_cast<std::uintptr_t>(parameter) | reinterpret_cast<std::uintptr_t>(grad) |
                    reinterpret_cast<std::uintptr_t>(momentum) | reinterpret_cast<std::uintptr_t>(second);
  const int packed = bits % 16 == 0 ? count / kPack * kPack : 0;
  const auto at = [](T* array, int i) { return array == nullptr ? nullptr : array + i; };
  for (int i = static_cast<int>(threadIdx.x) * kPack; i < packed; i += kThreads * kPack)
    update_pack<T, kPack>(rule, parameter + i, grad + i, at(momentum, i), at(second, i));
  for (int i = packed + static_cast<int>(threadIdx.x); i < count; i += kThreads)
    update_pack<T, 1>(rule, parameter + i, grad + i, at(momentum, i), at(second, i));
}

void* address(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

template <class T, template <class> class Rule, class Step>
void launch_slots(const char* name, std::span<const OptimizerSlot> slots, const Step& step, bool with_momentum,
                  bool with_second, cudaStream_t stream) {
  StepLaunch<Step> launch{};
  static_assert(sizeof launch <= 4096, "kernel parameters end at 4 KB on GPUs and drivers that must work");
  launch.step = step;
  std::uint32_t blocks = 0;
  const auto flush = [&] {
    if (launch.slots == 0) return;
    step_kernel<T, Rule<MathOf<T>>><<<blocks, kThreads, 0, stream>>>(launch);
    check_launch(name);
    launch.slots = 0, blocks = 0;
  };
  for (const OptimizerSlot& slot : slots) {
    const std::int64_t count = slot.parameter.numel();
    if (slot.parameter.dtype() != dtype_of_element<T> || count == 0) continue;
    const auto needed = static_cast<std::uint32_t>((count + kChunk - 1) / kChunk);
    if (launch.slots == kSlots || blocks > 0x7fffffffu - needed) flush();
    launch.slot[launch.slots] = {slot.parameter.raw(), slot.grad.raw(), with_momentum ? address(slot.momentum) : nullptr,
                                 with_second ? address(slot.second) : nullptr, count};
    launch.first_block[launch.slots++] = blocks;
    blocks += needed;
  }
  flush();
}

template <template <class> class Rule, class Step>
void launch_all(const char* name, std::span<const OptimizerSlot> slots, const Step& step, bool with_momentum, bool with_second,
                cudaStream_t stream) {
  for (const OptimizerSlot& slot : slots)
    require<DTypeError>(is_floating_point(slot.parameter.dtype()), name, ": expected floating-point parameters, got ",
                        slot.parameter.dtype());
  const auto run = [&]<class T>(T) { launch_slots<T, Rule>(name, slots, step, with_momentum, with_second, stream); };
  const auto any = [&](DType dtype) {
    return std::any_of(slots.begin(), slots.end(), [&](const OptimizerSlot& slot) { return slot.parameter.dtype() == dtype; });
  };
  if (any(DType::f32)) run(float{});
  if (any(DType::f64)) run(double{});
  if (any(DType::f16)) run(__half{});
  if (any(DType::bf16)) run(__nv_bfloat16{});
}

}  // namespace

void sgd_step(std::span<const OptimizerSlot> slots, const SgdStep& step, int, cudaStream_t stream) {
  const SgdCoefficients coefficients{step.learning_rate, step.momentum, 1 - step.dampening,
                                     step.weight_decay,  step.nesterov, step.first};
  launch_all<SgdRule>("sgd_step", slots, coefficients, step.momentum != 0, false, stream);
}

void adam_step(std::span<const OptimizerSlot> slots, const AdamStep& step, int device, cudaStream_t stream) {
  const AdamCoefficients coefficients{step.learning_rate,
                                      step.beta1,
                                      step.beta2,
                                      step.epsilon,
                                      step.decoupled ? 0 : step.weight_decay,
                                      step.decoupled ? 1 - step.learning_rate * step.weight_decay : 1,
                                      step.step,
                                      replay_state(device)};
  launch_all<AdamRule>("adam_step", slots, coefficients, true, true, stream);
}

}  // namespace polyphase::cuda
