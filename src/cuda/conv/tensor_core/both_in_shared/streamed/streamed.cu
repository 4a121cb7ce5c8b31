#include "cuda/conv/tensor_core/both_in_shared/streamed/streamed.hpp"

#include "cuda/conv/tensor_core/both_in_shared/streamed/kernel.cuh"
#include "cuda/conv/tensor_core/pipeline/prologue.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class Operand>
TileShape tile_shape(int columns) {
  return {columns, columns == 64 ? 2 * Operand::kN : Operand::kN, Operand::kParts, Operand::kVector, Operand::kDepth};
}

/// 128 columns a block unless that leaves more of them empty.
int choose_columns(const TapGemm& gemm) { return (gemm.columns + 63) / 64 % 2 == 0 ? 128 : 64; }

template <class Operand, int kColumns>
void launch(const Gather& call) {
  using T = typename Operand::Source;
  constexpr int kPositions = kColumns == 64 ? 2 * Operand::kN : Operand::kN;
  const DeviceProperties& gpu = properties(call.device);
  const Tiling tiling = make_tiling(call.gemm, tile_shape<Operand>(kColumns), gpu.sm_count, gpu.shared_bytes_per_block);
  const auto packed = cached_weights<Operand>(call, tiling, kColumns);
  const Sampled<Operand> sampled(call);
  sampled.launch(gather_kernel<Operand, kColumns, kPositions>, tiling.grid, kThreads, tiling.shared_bytes, call.gemm, tiling,
                 call.epilogue, static_cast<const T*>(call.source), packed->template as<unsigned char>(),
                 static_cast<const T*>(call.bias), static_cast<T*>(call.out), sampled.header(), sampled.exact());
  check_launch("conv tensor_core");
}

template <class Operand>
void gather_as(const Gather& call) {
  if (choose_columns(call.gemm) == 128)
    launch<Operand, 128>(call);
  else
    launch<Operand, 64>(call);
}

template <class Operand>
StreamedTiling tiling_of(const TapGemm& gemm, const DeviceProperties& gpu) {
  const TileShape tile = tile_shape<Operand>(choose_columns(gemm));
  return {make_tiling(gemm, tile, gpu.sm_count, gpu.shared_bytes_per_block), tile};
}

}  // namespace

StreamedTiling streamed_tiling(const ConvProblem& problem, ConvDirection direction, Precision precision,
                               const DeviceProperties& gpu) {
  const TapGemm gemm = make_tap_gemm(problem, direction);
  if (problem.dtype != DType::f32) return tiling_of<F16>(gemm, gpu);
  return precision == Precision::tf32 ? tiling_of<Tf32>(gemm, gpu) : tiling_of<SplitF16>(gemm, gpu);
}

void streamed_gather(const Gather& call) {
  switch (call.problem.dtype) {
    case DType::f16:
      return gather_as<F16>(call);
    case DType::bf16:
      return gather_as<Bf16>(call);
    default:
      if (call.precision == Precision::tf32) return gather_as<Tf32>(call);
      return gather_as<SplitF16>(call);
  }
}

}  // namespace polyphase::cuda::tensor_core
