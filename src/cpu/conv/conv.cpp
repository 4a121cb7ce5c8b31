#include "cpu/conv/conv.hpp"

#include <cstring>

#include "conv/length_invariant.hpp"
#include "cpu/conv/depthwise.hpp"
#include "cpu/conv/minimal_filter.hpp"
#include "cpu/conv/phase_gemm.hpp"
#include "cpu/conv/reference.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

/// Resolves `algorithm` to a concrete one. Throws if it cannot compute the problem.
Algorithm resolve(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm) {
  require<DTypeError>(is_floating_point(problem.dtype), "convolution ", direction, ": expected a floating-point dtype, got ",
                      problem.dtype);
  if (const auto reason = can_implement(problem, direction, algorithm))
    throw NotImplemented(concat("convolution ", direction, ": algorithm '", algorithm, "' cannot do ", problem,
                                " on the CPU: ", *reason, "; 'automatic' can"));
  return algorithm == Algorithm::automatic ? choose(problem, direction) : algorithm;
}

/// Whether minimal filtering computes the problem. Its bits depend on where an output is in the row.
bool is_minimal(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm, Precision precision) {
  return algorithm == Algorithm::automatic && precision == Precision::tf32 && !LengthInvariantGuard::is_active() &&
         minimal_filter_pays(problem, direction);
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic:
    case Algorithm::reference:
      return std::nullopt;
    case Algorithm::gemm:
      return phase_gemm_can_implement(problem, direction);
    case Algorithm::depthwise:
      return depthwise_can_implement(problem, direction);
    case Algorithm::direct:
    case Algorithm::tensor_core:
      break;
  }
  return "it is a CUDA kernel";
}

Algorithm choose(const ConvProblem& problem, ConvDirection direction) {
  if (!can_implement(problem, direction, Algorithm::depthwise)) return Algorithm::depthwise;
  return can_implement(problem, direction, Algorithm::gemm) ? Algorithm::reference : Algorithm::gemm;
}

void conv_forward(const ConvProblem& problem, const void* x, const void* w, const void* bias, void* y, Algorithm algorithm,
                  Precision precision) {
  if (is_minimal(problem, ConvDirection::forward, algorithm, precision)) {
    minimal_filter_gather(problem, ConvDirection::forward, x, w, bias, y);
    return;
  }
  switch (resolve(problem, ConvDirection::forward, algorithm)) {
    case Algorithm::reference:
      return reference_forward(problem, x, w, bias, y);
    case Algorithm::depthwise:
      return depthwise_gather(problem, ConvDirection::forward, x, w, bias, y);
    default:
      return phase_gemm_gather(problem, ConvDirection::forward, x, w, bias, y);
  }
}

void conv_dgrad(const ConvProblem& problem, const void* y, const void* w, const void* bias, void* x, Algorithm algorithm,
                Precision precision) {
  if (is_minimal(problem, ConvDirection::dgrad, algorithm, precision)) {
    minimal_filter_gather(problem, ConvDirection::dgrad, y, w, bias, x);
    return;
  }
  switch (resolve(problem, ConvDirection::dgrad, algorithm)) {
    case Algorithm::reference:
      return reference_dgrad(problem, y, w, bias, x);
    case Algorithm::depthwise:
      return depthwise_gather(problem, ConvDirection::dgrad, y, w, bias, x);
    default:
      return phase_gemm_gather(problem, ConvDirection::dgrad, y, w, bias, x);
  }
}

void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm) {
  const Algorithm chosen = resolve(problem, ConvDirection::wgrad, algorithm);
  if (problem.N == 0 || problem.L_in == 0 || problem.L_out == 0) {
    const std::int64_t weights = problem.C_in * problem.channels_out_per_group() * problem.K;
    std::memset(w, 0, static_cast<std::size_t>(weights) * size_of(problem.dtype));  // an empty sum, in every dtype
    return;
  }
  switch (chosen) {
    case Algorithm::reference:
      return reference_wgrad(problem, x, y, w);
    case Algorithm::depthwise:
      return depthwise_wgrad(problem, x, y, w);
    default:
      return phase_gemm_wgrad(problem, x, y, w);
  }
}

}  // namespace polyphase::cpu
