#include "cuda/conv/conv.hpp"

#include <ostream>
#include <string>

#include "conv/workspace.hpp"
#include "cuda/conv/choice/autotune.hpp"
#include "cuda/conv/choice/plan.hpp"
#include "cuda/conv/depthwise/depthwise.hpp"
#include "cuda/conv/direct/direct.hpp"
#include "cuda/conv/epilogue/finish.hpp"
#include "cuda/conv/gemm/gemm.hpp"
#include "cuda/conv/plan_cache.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"
#include "tensor/log.hpp"

namespace polyphase::cuda {
namespace {

/// One call, whatever its direction: `first` and `second` are its operands.
struct Call {
  const ConvProblem& problem;
  ConvDirection direction;
  const void *first, *second, *bias;
  void* out;
  Precision precision;
  int device;
  cudaStream_t stream;
  Epilogue epilogue{};
  const Weights* weights = nullptr;  // `second` of forward and dgrad, with the packings that are kept of it
};

/// Whether the tensor cores apply this call's epilogue, which depends on what there is of it, and not where.
bool tensor_core_applies(const Call& call) {
  struct Key {
    ChoiceKey call;
    Activation activation;
    double slope;
    bool adds, keeps, derives;
    std::uintptr_t source, out, aux;  // places in a sector
    bool operator==(const Key&) const = default;
  };
  thread_local PlanCache<Key, bool> remembered;
  const Epilogue& epilogue = call.epilogue;
  const Key key{{call.problem, call.direction, call.precision, call.device},
                epilogue.activation,
                epilogue.slope,
                epilogue.residual != 0,
                epilogue.before != 0,
                epilogue.derivative != 0,
                place_in_sector(call.first),
                place_in_sector(call.out),
                static_cast<std::uintptr_t>(epilogue.residual | epilogue.derivative) % 32};
  return remembered.get(key, [&] {
    return tensor_core::fuses(call.problem, call.direction, epilogue, call.precision, call.device, call.first, call.out);
  });
}

/// Whether the kernels of `algorithm` apply this call's epilogue, with the bits of launches of their own.
bool applies_epilogue(const Call& call, Algorithm algorithm) {
  if (!call.epilogue.is_needed()) return true;
  switch (algorithm) {
    case Algorithm::gemm:  // cuBLAS stores dgrad's results
      return call.direction == ConvDirection::forward;
    case Algorithm::tensor_core:
      return call.direction != ConvDirection::wgrad && tensor_core_applies(call);
    default:
      return true;
  }
}

void issue(const Call& call, Algorithm algorithm) {
  const bool applies = applies_epilogue(call, algorithm);
  const Epilogue epilogue = applies ? call.epilogue : Epilogue{};
  void* out = call.out;
  if (!applies && keeps_first(call.epilogue))
    out = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(out) + static_cast<std::uintptr_t>(call.epilogue.before));
  const bool is_wgrad = call.direction == ConvDirection::wgrad;
  switch (algorithm) {
    case Algorithm::depthwise:
      if (is_wgrad) return depthwise::wgrad(call.problem, call.first, call.second, call.out, call.device, call.stream);
      return depthwise::gather(call.problem, call.direction, call.first, call.second, call.bias, out, epilogue, call.device,
                               call.stream);
    case Algorithm::gemm:
      if (is_wgrad)
        return gemm::wgrad(call.problem, call.first, call.second, call.out, call.precision, call.device, call.stream);
      return gemm::gather(call.problem, call.direction, call.first, call.second, call.bias, out, epilogue, call.precision,
                          call.device, call.stream);
    case Algorithm::tensor_core:
      if (is_wgrad)
        return tensor_core::wgrad(call.problem, call.precision, call.first, call.second, call.out, call.device, call.stream);
      return tensor_core::gather(call.problem, call.direction, call.first, *call.weights, call.bias, out, epilogue,
                                 call.precision, call.device, call.stream);
    default:
      if (is_wgrad) return direct::wgrad(call.problem, call.first, call.second, call.out, call.device, call.stream);
      return direct::gather(call.problem, call.direction, call.first, call.second, call.bias, out, epilogue, call.device,
                            call.stream);
  }
}

/// `automatic` made concrete; remembered, so that the ranking stays off the launch path.
Algorithm choose(const Call& call) {
  thread_local PlanCache<ChoiceKey, Algorithm> remembered;
  return remembered.get({call.problem, call.direction, call.precision, call.device}, [&] {
    const ConvPlan plan = make_conv_plan(call.problem, call.direction, call.precision, call.device);
    if (log_topic("plan")) log_message(LogLevel::info, concat("plan: ", plan));
    return plan.algorithm;
  });
}

/// Returns the algorithm that `algorithm` came to.
Algorithm run(const Call& call, Algorithm algorithm) {
  require<DTypeError>(is_floating_point(call.problem.dtype), "convolution ", call.direction,
                      ": expected a floating-point dtype, got ", call.problem.dtype);
  const DeviceScope device(call.device);
  const StreamScope stream(call.device, call.stream);  // scratch memory is ordered on the current stream
  if (algorithm != Algorithm::automatic) {
    if (const auto reason = can_implement(call.problem, call.direction, algorithm, call.precision, call.device))
      throw NotImplemented(concat("convolution ", call.direction, ": algorithm '", algorithm, "' cannot do ", call.problem,
                                  " on cuda:", call.device, ": ", *reason, "; 'automatic' can"));
  } else if (autotune_enabled()) {
    algorithm = autotuned(call.problem, call.direction, call.precision, call.device, call.stream,
                          [&](Algorithm candidate) { issue(call, candidate); });
  } else {
    algorithm = choose(call);
  }
  issue(call, algorithm);
  return algorithm;
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm,
                                         Precision precision, int device) {
  if (!is_floating_point(problem.dtype)) return concat("it needs a floating-point dtype, got ", problem.dtype);
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::direct:
      return std::nullopt;
    case Algorithm::depthwise:
      return depthwise::can_implement(problem, direction, device);
    case Algorithm::gemm:
      return gemm::can_implement(problem, direction);
    case Algorithm::tensor_core:
      return tensor_core::can_implement(problem, direction, precision, device);
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

bool conv_activated(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& w, const void* bias,
                    void* out, const Epilogue& epilogue, Algorithm algorithm, Precision precision, int device,
                    cudaStream_t stream) {
  const Call call{problem, direction, source, w.data(), bias, out, precision, device, stream, epilogue, &w};
  return applies_epilogue(call, run(call, algorithm));
}

bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Algorithm algorithm,
           Precision precision, int device) {
  const Call call{problem, direction, nullptr, nullptr, nullptr, nullptr, precision, device, nullptr, epilogue};
  const DeviceScope scope(device);
  return applies_epilogue(call, algorithm == Algorithm::automatic ? choose(call) : algorithm);
}

void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm, Precision precision,
                int device, cudaStream_t stream) {
  run({problem, ConvDirection::wgrad, x, y, nullptr, w, precision, device, stream}, algorithm);
}

}  // namespace polyphase::cuda
