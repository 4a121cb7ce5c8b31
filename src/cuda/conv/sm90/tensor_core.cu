#include "cuda/conv/sm90/tensor_core.hpp"

#include <algorithm>
#include <ostream>
#include <string_view>

#include "cuda/allocator.hpp"
#include "cuda/conv/sm90/tensor_core.cuh"
#include "cuda/conv/sm90/tensor_core_prepare.cuh"
#include "cuda/conv/sm90/tensor_core_wgrad_steps.hpp"
#include "cuda/presence.hpp"
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
void launch(const ConvProblem& problem, ConvDirection direction, const TapGemm& form, const void* source, const void* w,
            const void* bias, void* out, const Epilogue& epilogue, int device, cudaStream_t stream) {
  using T = typename Operand::Source;
  constexpr int kPositions = kColumns == 64 ? 2 * Operand::kN : Operand::kN;
  const DeviceProperties& gpu = properties(device);
  const Steps steps = make_steps(form, tile_shape<Operand>(kColumns), gpu.sm_count, gpu.shared_bytes_per_block);
  const bool is_forward = direction == ConvDirection::forward;
  const std::int64_t vectors = steps.weight_tiles * steps.count * (steps.weight_bytes / 16 / Operand::kParts);
  const Buffer packed(static_cast<std::size_t>(vectors * Operand::kParts) * 16, device);
  const std::size_t state_bytes = sizeof(State) + (Operand::kSplit ? static_cast<std::size_t>(steps.blocks) * 4 : 0);
  const Buffer state_buffer(state_bytes, device);
  auto* state = state_buffer.as<State>();
  auto* tile_split = reinterpret_cast<std::uint32_t*>(state + 1);
  const auto* from = static_cast<const T*>(source);
  const auto* weights = static_cast<const T*>(w);
  CHECK_CUDA(cudaMemsetAsync(state, 0, state_bytes, stream));
  if constexpr (Operand::kSplit) {
    const std::int64_t weight_count = problem.C_in * (problem.C_out / problem.G) * problem.K;
    const auto blocks = static_cast<unsigned>(kSampleBlocks + std::min<std::int64_t>((weight_count + 2047) / 2048, 1024));
    scales_kernel<<<blocks, kPrepareThreads, 0, stream>>>(from, form.N * form.G * form.rows * form.source_length, weights,
                                                          weight_count, state);
    check_launch("conv tensor_core: scales");
  }
  const auto pack_grid = static_cast<unsigned>(std::min<std::int64_t>((vectors + kPrepareThreads - 1) / kPrepareThreads, 4096));
  pack_kernel<Operand><<<pack_grid, kPrepareThreads, 0, stream>>>(form, steps, problem, kColumns, is_forward, vectors, weights,
                                                                  packed.as<unsigned char>(), state);
  check_launch("conv tensor_core: pack weights");
  auto* kernel = gather_kernel<Operand, kColumns, kPositions>;
  CHECK_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, steps.shared_bytes));
  kernel<<<steps.grid, kThreads, static_cast<std::size_t>(steps.shared_bytes), stream>>>(
      form, steps, epilogue, from, packed.as<unsigned char>(), static_cast<const T*>(bias), static_cast<T*>(out), state,
      tile_split);
  check_launch("conv tensor_core");
  if constexpr (Operand::kSplit) {
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>(steps.blocks, std::int64_t{4} * gpu.sm_count));
    repair_kernel<kColumns, kPositions><<<grid, 256, 0, stream>>>(form, steps, problem, epilogue, is_forward, from, weights,
                                                                  static_cast<const T*>(bias), static_cast<T*>(out), tile_split,
                                                                  state);
    check_launch("conv tensor_core: repair");
  }
}

template <class Operand>
void gather_as(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias,
               void* out, const Epilogue& epilogue, int device, cudaStream_t stream) {
  const TapGemm form = make_tap_gemm(problem, direction);
  if (choose_columns(form) == 128)
    launch<Operand, 128>(problem, direction, form, source, w, bias, out, epilogue, device, stream);
  else
    launch<Operand, 64>(problem, direction, form, source, w, bias, out, epilogue, device, stream);
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Precision precision, int device) {
  const DeviceProperties& gpu = properties(device);
  if (gpu.arch() != 90)
    return concat("it needs a GPU of compute capability 9.0, cuda:", device, " has ", gpu.major, '.', gpu.minor);
  if (built_archs().find("90a") == std::string_view::npos)
    return concat("it needs code for sm_90a, this build has code for ", built_archs());
  if (problem.dtype == DType::f64) return "there are no tensor cores for f64 convolutions here";
  if (problem.dtype == DType::f32 && precision == Precision::ieee) return "precision ieee wants unrounded products";
  const std::int64_t in = problem.channels_in_per_group(), out = problem.channels_out_per_group();
  if (in < kLeastChannels || out < kLeastChannels)
    return concat("it needs ", kLeastChannels, " channels a group on both sides, got ", in, " and ", out);
  const int shared = gpu.shared_bytes_per_block;
  if (direction == ConvDirection::wgrad) return wgrad_problem(problem, gpu.sm_count, shared);
  const TapGemm form = make_tap_gemm(problem, direction);
  const bool is_split = problem.dtype == DType::f32 && precision == Precision::fp32;
  if (!is_split && (form.full_classes < form.classes || form.full_planes < form.planes))
    return "a phase lacks a tap that others have, and the zero in its place would turn an infinity into NaN";
  const int columns = choose_columns(form);
  const TileShape tile = problem.dtype != DType::f32 ? tile_shape<Half>(columns)
                         : is_split                  ? tile_shape<SplitHalf>(columns)
                                                     : tile_shape<Tf32>(columns);
  if (make_steps(form, tile, gpu.sm_count, shared).count == 0)
    return concat("no tile of it fits ", shared, " bytes of shared memory");
  return std::nullopt;
}

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream) {
  if (problem.N == 0) return;
  switch (problem.dtype) {
    case DType::f16:
      return gather_as<Half>(problem, direction, source, w, bias, out, epilogue, device, stream);
    case DType::bf16:
      return gather_as<Brain>(problem, direction, source, w, bias, out, epilogue, device, stream);
    default:
      if (precision == Precision::tf32)
        return gather_as<Tf32>(problem, direction, source, w, bias, out, epilogue, device, stream);
      return gather_as<SplitHalf>(problem, direction, source, w, bias, out, epilogue, device, stream);
  }
}

}  // namespace polyphase::cuda::tensor_core
