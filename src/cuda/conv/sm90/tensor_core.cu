#include "cuda/conv/sm90/tensor_core.hpp"

#include <algorithm>
#include <ostream>

#include "conv/workspace.hpp"
#include "cuda/allocator.hpp"
#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm80/tensor_core_mma_wgrad.hpp"
#include "cuda/conv/sm90/tensor_core.cuh"
#include "cuda/conv/sm90/tensor_core_boxes.hpp"
#include "cuda/conv/sm90/tensor_core_launch.cuh"
#include "cuda/conv/sm90/tensor_core_phases.hpp"
#include "cuda/conv/sm90/tensor_core_resident.hpp"
#include "cuda/conv/sm90/tensor_core_turned.hpp"
#include "cuda/conv/sm90/tensor_core_units.hpp"
#include "cuda/conv/sm90/tensor_core_wgrad_steps.hpp"
#include "cuda/conv/sm90/tensor_core_wide.hpp"
#include "cuda/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

constexpr std::int64_t kLeastChannels = 8;

template <class Operand>
TileShape tile_shape(int columns) {
  return {columns, columns == 64 ? 2 * Operand::kN : Operand::kN, Operand::kParts, Operand::kVector, Operand::kDepth};
}

/// 128 columns a block unless that leaves more of them empty.
int choose_columns(const TapGemm& form) { return (form.columns + 63) / 64 % 2 == 0 ? 128 : 64; }

template <class Operand, int kColumns>
void launch(const Gather& call) {
  using T = typename Operand::Source;
  constexpr int kPositions = kColumns == 64 ? 2 * Operand::kN : Operand::kN;
  const DeviceProperties& gpu = properties(call.device);
  const Steps steps = make_steps(call.form, tile_shape<Operand>(kColumns), gpu.sm_count, gpu.shared_bytes_per_block);
  const Prepared<Operand> prepared(call, steps, kColumns);
  auto* kernel = gather_kernel<Operand, kColumns, kPositions>;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  kernel<<<steps.grid, kThreads, static_cast<std::size_t>(steps.shared_bytes), call.stream>>>(
      call.form, steps, call.epilogue, static_cast<const T*>(call.source), prepared.packed(), static_cast<const T*>(call.bias),
      static_cast<T*>(call.out), prepared.state(), prepared.tile_split());
  check_launch("conv tensor_core");
  prepared.repair(call, steps, kColumns, kPositions);
}

template <class Operand>
void gather_as(const Gather& call) {
  if (choose_columns(call.form) == 128)
    launch<Operand, 128>(call);
  else
    launch<Operand, 64>(call);
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  const DeviceProperties& gpu = properties(device);
  if (gpu.arch() < 80)
    return concat("it needs a GPU of compute capability 8.0 or later, cuda:", device, " has ", gpu.major, '.', gpu.minor);
  if (problem.dtype == DType::f64) return "there are no tensor cores for f64 convolutions here";
  if (problem.dtype == DType::f32 && precision == Precision::ieee) return "precision ieee wants unrounded products";
  const std::int64_t in = problem.channels_in_per_group(), out = problem.channels_out_per_group();
  if (in < kLeastChannels || out < kLeastChannels)
    return concat("it needs ", kLeastChannels, " channels a group on both sides, got ", in, " and ", out);
  const int shared = gpu.shared_bytes_per_block;
  const bool is_mma = uses_mma(gpu.arch());
  if (direction == ConvDirection::wgrad)
    return is_mma ? mma_wgrad_problem(problem, precision, gpu.sm_count, shared) : wgrad_problem(problem, gpu.sm_count, shared);
  const TapGemm form = make_tap_gemm(problem, direction);
  const bool is_split = problem.dtype == DType::f32 && precision == Precision::fp32;
  if (wide_plan_that_pays(problem, direction, precision, device)) return std::nullopt;
  if (is_mma && problem.N > 0)
    return concat("no tile of it fits ", shared, " bytes of shared memory, or one sample no workspace of ",
                  conv_workspace_limit(), " bytes");
  const bool is_resident = resident_fits(problem, direction, precision, device);
  if (is_resident && problem.dtype == DType::f32) return std::nullopt;
  if (!is_split && (form.full_classes < form.classes || form.full_planes < form.planes))
    return "a phase lacks a tap that others have, and the zero in its place would turn an infinity into NaN";
  if (is_resident) return std::nullopt;
  const int columns = choose_columns(form);
  const TileShape tile = problem.dtype != DType::f32 ? tile_shape<Half>(columns)
                         : is_split                  ? tile_shape<SplitHalf>(columns)
                                                     : tile_shape<Tf32>(columns);
  if (make_steps(form, tile, gpu.sm_count, shared).count == 0)
    return concat("no tile of it fits ", shared, " bytes of shared memory");
  return std::nullopt;
}

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& weights, const void* bias,
            void* out, const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream) {
  if (problem.N == 0) return;
  const void* w = weights.data();
  const auto is_aligned = [](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; };
  if (phases_fit(problem, direction, precision, device) && is_aligned(source) && is_aligned(out))
    return phases_gather(problem, source, weights, bias, out, epilogue, device, stream);
  if (const auto plan = wide_plan_that_pays(problem, direction, precision, device)) {
    if (units_pay(problem, direction, precision, device) && is_aligned(source) && is_aligned(out))
      return units_gather(problem, source, weights, bias, out, epilogue, device, stream);
    const auto pack = [problem, direction, precision, plan](const void* from, void* to, cudaStream_t on) {
      wide_pack_weights(problem, direction, precision, *plan, from, to, on);
    };
    const auto packed = weights.packed(wide_weight_key(problem, direction, precision, *plan),
                                       static_cast<std::size_t>(wide_weight_bytes(*plan)), device, stream, pack);
    return wide_gather(problem, direction, precision, *plan, source, w, packed->as<void>(), bias, out, epilogue, device,
                       stream);
  }
  if (turned_pays(problem, direction, device) && turned_takes(problem, direction, source, out, device))
    return turned_gather(problem, direction, source, weights, bias, out, epilogue, device, stream);
  if (!epilogue.is_needed() && boxes_pay(problem, direction, precision, source, out, device))
    return boxes_gather(problem, direction, source, weights, bias, out, precision, device, stream);
  if (resident_fits(problem, direction, precision, device))
    return resident_gather(problem, direction, source, weights, bias, out, epilogue, precision, device, stream);
  const Gather call{problem, direction, make_tap_gemm(problem, direction), source, w, bias, out, epilogue, device, stream};
  switch (problem.dtype) {
    case DType::f16:
      return gather_as<Half>(call);
    case DType::bf16:
      return gather_as<Brain>(call);
    default:
      if (precision == Precision::tf32) return gather_as<Tf32>(call);
      return gather_as<SplitHalf>(call);
  }
}

}  // namespace polyphase::cuda::tensor_core
