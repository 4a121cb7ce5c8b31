#include "cuda/conv/conv.hpp"

#include <ostream>
#include <string>

#include "conv/length_invariant.hpp"
#include "conv/workspace.hpp"
#include "cuda/conv/choice/autotune.hpp"
#include "cuda/conv/choice/plan.hpp"
#include "cuda/conv/depthwise/depthwise.hpp"
#include "cuda/conv/direct/direct.hpp"
#include "cuda/conv/epilogue/finish.hpp"
#include "cuda/conv/gemm/gemm.hpp"
#include "cuda/conv/plan_cache.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/residual_unit/residual_unit.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {
namespace {

/// One call in any direction; `first` and `second` are its operands.
struct Call {
  const ConvProblem& problem;
  ConvDirection direction;
  const void *first, *second, *bias;
  void* out;
  Precision precision;
  int device;
  cudaStream_t stream;
  Epilogue epilogue{};
  const Weights* weights = nullptr;  // `second` of forward and dgrad, with its cached packings
  SourceActivation activation{};
};

/// The plan of the call with `algorithm`. In wgrad the plan does not depend on addresses.
const ConvPlan& plan_of(const Call& call, Algorithm algorithm) {
  const bool is_wgrad = call.direction == ConvDirection::wgrad;
  return conv_plan({call.problem, call.direction, call.precision, call.device, algorithm,
                    is_wgrad ? Alignment{} : alignment_of(call.first, call.out), call.epilogue, call.bias != nullptr});
}

void issue(const Call& call, const ConvPlan& plan) {
  const Epilogue epilogue = plan.fuses ? call.epilogue : Epilogue{};
  void* out = call.out;
  if (!plan.fuses && keeps_first(call.epilogue))
    out = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(out) + static_cast<std::uintptr_t>(call.epilogue.before));
  const bool is_wgrad = call.direction == ConvDirection::wgrad;
  switch (plan.algorithm) {
    case Algorithm::depthwise:
      if (is_wgrad) return depthwise::wgrad(call.problem, call.first, call.second, call.out, call.device, call.stream);
      return depthwise::gather(call.problem, call.direction, call.first, call.second, call.bias, out, call.activation.snake,
                               epilogue, call.device, call.stream);
    case Algorithm::gemm:
      if (is_wgrad)
        return gemm::wgrad(call.problem, call.first, call.second, call.out, call.precision, call.device, call.stream);
      return gemm::gather(call.problem, call.direction, call.first, call.second, call.bias, out, epilogue, call.precision,
                          call.device, call.stream);
    case Algorithm::tensor_core:
      if (is_wgrad)
        return tensor_core::wgrad(call.problem, call.precision, call.first, call.second, call.out, call.device, call.stream);
      if (plan.kernel) {
        tensor_core::Gather gather{call.problem, call.direction, call.precision, call.first, *call.weights, call.bias,
                                   out,          epilogue,       call.device,    call.stream};
        gather.gemm.source_slope = call.activation.slope;
        gather.snake = call.activation.snake;
        tensor_core::gather_by(*plan.kernel, gather);
      }
      return;
    default:
      if (is_wgrad) return direct::wgrad(call.problem, call.first, call.second, call.out, call.device, call.stream);
      {
        const bool any_length = LengthInvariantGuard::is_active();
        const int tile = any_length ? direct::tile_of_any_length(call.problem, call.direction, call.device) : -1;
        return direct::gather(call.problem, call.direction, call.first, *call.weights, call.bias, out, epilogue, call.device,
                              call.stream, tile, any_length ? 1 : 0);
      }
  }
}

/// Algorithm::direct under a LengthInvariantGuard.
Algorithm in_guard(ConvDirection direction, Algorithm algorithm) {
  return direction != ConvDirection::wgrad && LengthInvariantGuard::is_active() ? Algorithm::direct : algorithm;
}

/// Returns the plan that was used.
const ConvPlan& run(const Call& call, Algorithm algorithm) {
  require<DTypeError>(is_floating_point(call.problem.dtype), "convolution ", call.direction,
                      ": expected a floating-point dtype, got ", call.problem.dtype);
  const DeviceScope device(call.device);
  const StreamScope stream(call.device, call.stream);  // scratch memory is ordered on the current stream
  algorithm = in_guard(call.direction, algorithm);
  if (algorithm == Algorithm::automatic && autotune_enabled()) {
    algorithm = autotuned(call.problem, call.direction, call.precision, call.device, call.stream,
                          [&](Algorithm candidate) { issue(call, plan_of(call, candidate)); });
  }
  const ConvPlan& plan = plan_of(call, algorithm);
  issue(call, plan);
  return plan;
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm,
                                         Precision precision, int device) {
  if (!is_floating_point(problem.dtype)) return concat("it needs a floating-point dtype, got ", problem.dtype);
  thread_local PlanCache<ChoiceKey, std::optional<std::string>> remembered;  // cached: tensor_core's answer tries every kernel
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::direct:
      return std::nullopt;
    case Algorithm::depthwise:
      return depthwise::can_implement(problem, direction, device);
    case Algorithm::gemm:
      return gemm::can_implement(problem, direction);
    case Algorithm::tensor_core:
      return remembered.get({problem, direction, precision, device},
                            [&] { return tensor_core::can_implement(problem, direction, precision, device); });
    case Algorithm::reference:
      break;
  }
  return "it runs on the CPU only";
}

void conv_forward(const ConvProblem& problem, const void* x, const Weights& w, const void* bias, void* y, Algorithm algorithm,
                  Precision precision, int device, cudaStream_t stream) {
  run({problem, ConvDirection::forward, x, w.data(), bias, y, precision, device, stream, {}, &w}, algorithm);
}

void conv_dgrad(const ConvProblem& problem, const void* y, const Weights& w, const void* bias, void* x, Algorithm algorithm,
                Precision precision, int device, cudaStream_t stream) {
  run({problem, ConvDirection::dgrad, y, w.data(), bias, x, precision, device, stream, {}, &w}, algorithm);
}

bool conv_activated(const ConvProblem& problem, ConvDirection direction, const void* source, const SourceActivation& activation,
                    const Weights& w, const void* bias, void* out, const Epilogue& epilogue, Algorithm algorithm,
                    Precision precision, int device, cudaStream_t stream) {
  const Call call{problem, direction, source, w.data(), bias, out, precision, device, stream, epilogue, &w, activation};
  return run(call, algorithm).fuses;
}

bool activates_source(const ConvProblem& problem, ConvDirection direction, const void* source, const void* bias, void* out,
                      const Epilogue& epilogue, bool is_snake, Algorithm algorithm, Precision precision, int device) {
  if (algorithm == Algorithm::automatic && autotune_enabled()) return false;  // any of its candidates may run
  const Call call{problem, direction, source, nullptr, bias, out, precision, device, nullptr, epilogue};
  const DeviceScope scope(device);
  const ConvPlan& plan = plan_of(call, in_guard(direction, algorithm));
  return is_snake ? plan.activates_snake : plan.activates_source;
}

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Algorithm algorithm,
           Precision precision, int device) {
  const Call call{problem, direction, nullptr, nullptr, nullptr, nullptr, precision, device, nullptr, epilogue};
  const DeviceScope scope(device);
  return plan_of(call, in_guard(direction, algorithm)).fuses;
}

bool residual_unit(const ResidualUnit& unit, const void* x, const std::array<UnitConv, 2>& convs, const UnitAverage& average,
                   void* out, int device, cudaStream_t stream) {
  if (LengthInvariantGuard::is_active()) return false;
  const DeviceScope scope(device);
  const StreamScope on(device, stream);
  return tensor_core::residual_unit(unit, x, convs, average, out, device, stream);
}

void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm, Precision precision,
                int device, cudaStream_t stream) {
  run({problem, ConvDirection::wgrad, x, y, nullptr, w, precision, device, stream}, algorithm);
}

}  // namespace polyphase::cuda
