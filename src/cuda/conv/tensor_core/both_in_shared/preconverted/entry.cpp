#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/pipeline/kernel_entry.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// f32 outputs of at least so many bytes are finished in the stores. A separate launch over a smaller output finds it in L2;
/// code in the stores that no earlier tile has run takes longer (docs/kernels/launches.md).
constexpr std::int64_t kLeastBytesWithAux = std::int64_t{24} << 20;

std::optional<double> seconds(const KernelProblem& asked, const DeviceProperties& gpu) {
  return preconverted_cost(asked.problem, asked.direction, asked.precision, gpu);
}

/// The aux operand is loaded into the staging buffer during the products; the buffer holds one. In 16 bits it is a residual
/// that is added as it is, to whole vectors. The kernel that adds slices has no products to overlap with
/// (docs/kernels/launches.md).
bool takes_aux(const KernelProblem& asked, const Epilogue& epilogue, int device) {
  const bool is_f32 = asked.problem.dtype == DType::f32;
  if (asked.problem.dtype == DType::f64 || !epilogue.is_light() || epilogue.has_both()) return false;
  const TapGemm gemm = make_tap_gemm(asked.problem, asked.direction);
  const std::int64_t bytes = gemm.N * gemm.G * gemm.out_channels * gemm.out_length * size_of(asked.problem.dtype);
  if (gemm.out_stride != 1 || (is_f32 && bytes < kLeastBytesWithAux)) return false;
  const bool is_sum = epilogue.derivative == 0 && epilogue.activation == Activation::none && epilogue.scale == 1;
  const auto plan = preconverted_plan(asked.problem, asked.direction, asked.precision, device);
  return plan && plan->tiling.slices == 1 && (is_f32 || (is_sum && plan->tiling.whole_vectors));
}

/// Sums are finished in registers, after the suspect ones are found.
bool fuses(const KernelProblem& asked, const Epilogue& epilogue, int device) {
  if (epilogue.has_aux()) return takes_aux(asked, epilogue, device);
  return epilogue.activation != Activation::snake;
}

/// In 16 bits only where no sum is computed again from the source; in f32 such sums read an activated copy.
bool activates_snake(const KernelProblem& asked) {
  return !is_16_bits(asked.problem) || !has_gaps(asked, make_tap_gemm(asked.problem, asked.direction));
}

void gather(const Gather& call) {
  const ConvProblem problem = call.problem;
  const ConvDirection direction = call.direction;
  const Precision precision = call.precision;
  const auto plan = preconverted_plan(problem, direction, precision, call.device);
  const auto pack = [problem, direction, precision, plan](const void* from, void* to, cudaStream_t on) {
    preconverted_pack_weights(problem, direction, precision, *plan, from, to, on);
  };
  const auto packed =
      call.weights.packed(preconverted_weight_key(problem, direction, precision, *plan),
                          static_cast<std::size_t>(preconverted_weight_bytes(*plan)), call.device, call.stream, pack);
  preconverted_gather(problem, direction, precision, *plan, call.source, {call.gemm.source_slope, call.snake},
                      call.weights.data(), packed->as<void>(), call.bias, call.out, call.epilogue, call.device, call.stream);
}

}  // namespace

constinit const KernelEntry kPreconverted{.name = "preconverted",
                                          .seconds = seconds,
                                          .fuses = fuses,
                                          .activates_source = true,
                                          .activates_snake = activates_snake,
                                          .gather = gather};

}  // namespace polyphase::cuda::tensor_core
