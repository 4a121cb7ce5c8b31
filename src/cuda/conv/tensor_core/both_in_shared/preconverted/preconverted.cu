#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"

#include <algorithm>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/activated_copy.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/kernel.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/pack_weights.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/recompute.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Where a launch's memory begins: header, flags, the source as operand, partial sums.
struct Workspace {
  std::int64_t flags, operand, partial, bytes;
  Workspace(const TapGemm& gemm, const PreconvertedTiling& tiling) {
    flags = kOperandHeaderBytes;
    operand = (flags + gemm.G * tiling.source.flags * 4 + 255) / 256 * 256;
    partial = operand + tiling.source.bytes(gemm.G);
    bytes = partial + tiling.partial_bytes;
  }
};

/// What the kernels of one call share.
template <class Operand>
struct Call {
  using T = typename Operand::Source;
  TapGemm gemm;
  const PreconvertedTiling& tiling;
  const Epilogue& epilogue;
  const OperandHeader* weights;
  const T* bias;
  T* out;
  unsigned char* workspace;
  Workspace at;
  cudaStream_t stream;
  FlaggedSource<T> exact;

  template <int kN, bool kAlongPositions>
  void multiply() const {
    auto* kernel = preconverted_kernel<Operand, kN, kAlongPositions>;
    allow_shared_memory(kernel, tiling.shared_bytes);
    const auto* header = reinterpret_cast<const OperandHeader*>(workspace);
    auto* partial = reinterpret_cast<float4*>(workspace + at.partial);
    launch_behind(kernel, tiling.grid, kPreconvertedThreads, static_cast<std::size_t>(tiling.shared_bytes), stream, gemm,
                  tiling, epilogue, workspace + at.operand, reinterpret_cast<const unsigned char*>(weights + 1), bias, out,
                  partial, header, weights, exact);
    check_launch("conv tensor_core: preconverted");
    if (tiling.slices == 1) return;
    launch_behind(preconverted_reduce_kernel<Operand, kN, kAlongPositions>, static_cast<unsigned>(tiling.tiles),
                  kPreconvertedConsumers, 0, stream, gemm, tiling, epilogue, bias, out, partial, header, weights, exact);
    check_launch("conv tensor_core: preconverted slices");
  }

  /// Runs the mma.sync kernel; `shape` is an index into mma_shapes().
  void multiply_by_mma(int shape) const {
    const auto* header = reinterpret_cast<const OperandHeader*>(workspace);
    const auto* packed = reinterpret_cast<const unsigned char*>(weights + 1);
    auto* partial = reinterpret_cast<float4*>(workspace + at.partial);
    mma_multiply<Operand>(
        {gemm, tiling, epilogue, workspace + at.operand, packed, bias, out, partial, header, weights, exact, stream}, shape);
  }

  /// Runs the wgmma kernel; `shape` is an index into preconverted_shapes().
  void multiply(int shape) const {
    constexpr int kMost = Operand::kSplit ? 128 : 256;
    if (shape == 0) return multiply<kMost, false>();
    if (shape == 1) return multiply<kMost, true>();
    if constexpr (!Operand::kSplit) return multiply<128, false>();
  }
};

/// Whether operands contain zeros that the problem does not have: such a zero times Inf or NaN would give NaN.
bool has_gaps(const TapGemm& gemm) { return gemm.full_classes < gemm.classes || gemm.full_planes < gemm.planes; }

/// Whether numbers of the source can make sums suspect.
template <class Operand>
bool needs_flags(const TapGemm& gemm) {
  return Operand::kScaled || has_gaps(gemm);
}

/// Converts the source to an operand and writes header and flags.
template <class Operand>
void prepare(const TapGemm& gemm, const PreconvertedTiling& tiling, const typename Operand::Source* source,
             const SourceSnake& snake, OperandHeader* header, std::uint32_t* flags, const Marks& marks, unsigned char* operand,
             cudaStream_t stream) {
  using T = typename Operand::Source;
  const auto blocks = static_cast<unsigned>(source_blocks(gemm, tiling.source));
  const std::int64_t flag_count = gemm.G * tiling.source.flags;
  const bool is_snake = snake.alpha != nullptr;
  auto* const kernel = is_snake ? source_kernel<Operand, true> : source_kernel<Operand, false>;
  if constexpr (Operand::kScaled) {
    auto* const sample = is_snake ? sample_source<true> : sample_source<false>;
    sample(gemm, source, header, stream, {flags, static_cast<std::size_t>(flag_count)}, marks, snake);
    launch_behind(kernel, blocks, kSourceThreads, 0, stream, gemm, tiling.source, source, static_cast<const T*>(snake.alpha),
                  static_cast<const T*>(snake.beta), header, flags, operand);
  } else {
    const bool flagged = needs_flags<Operand>(gemm);
    if (flagged) write_zeros(reinterpret_cast<std::uint32_t*>(header), kOperandHeaderBytes / 4 + flag_count, stream);
    kernel<<<blocks, kSourceThreads, 0, stream>>>(gemm, tiling.source, source, static_cast<const T*>(snake.alpha),
                                                  static_cast<const T*>(snake.beta), header, flagged ? flags : nullptr,
                                                  operand);
  }
  check_launch("conv tensor_core: preconverted source");
}

/// Computes all samples of `problem` with `tiling`.
template <class Operand>
void gather_as(const ConvProblem& problem, ConvDirection direction, const PreconvertedPlan& plan,
               const PreconvertedTiling& tiling, const void* source, const SourceActivation& activation, const void* w,
               const void* packed, const void* bias, void* out, const Epilogue& epilogue, int device, cudaStream_t stream) {
  using T = typename Operand::Source;
  TapGemm gemm = make_tap_gemm(problem, direction);
  gemm.source_slope = activation.slope;
  const Workspace at(gemm, tiling);
  const Buffer buffer(static_cast<std::size_t>(at.bytes), device);
  auto* workspace = buffer.as<unsigned char>();
  auto* header = reinterpret_cast<OperandHeader*>(workspace);
  auto* flags = reinterpret_cast<std::uint32_t*>(workspace + at.flags);
  const auto* from = static_cast<const T*>(source);
  const auto* weights = static_cast<const OperandHeader*>(packed);
  const bool is_forward = direction == ConvDirection::forward;
  const Precision precision = Operand::kSplit ? Precision::fp32 : Precision::tf32;
  const std::int64_t rows = gemm.N * gemm.G * gemm.rows;
  const bool copies = Operand::kScaled && activation.snake.alpha != nullptr;
  const Buffer copy(copies ? static_cast<std::size_t>(rows * gemm.source_length) * sizeof(float) : 0, device);
  const float* const again = copies ? copy.as<float>() : static_cast<const float*>(source);
  const WideGather wide(WideCall{gemm,
                                 {problem, is_forward, again, static_cast<const float*>(w)},
                                 precision,
                                 static_cast<const float*>(bias),
                                 static_cast<float*>(out),
                                 epilogue,
                                 device,
                                 stream});
  prepare<Operand>(gemm, tiling, from, activation.snake, header, flags, wide.marks(&weights->small), workspace + at.operand,
                   stream);
  const FlaggedSource<T> exact{{problem, is_forward, from, static_cast<const T*>(w), wide.exact().wide},
                               needs_flags<Operand>(gemm) ? flags : nullptr,
                               header};
  const Call<Operand> call{gemm,      tiling, epilogue, weights, static_cast<const T*>(bias), static_cast<T*>(out),
                           workspace, at,     stream,   exact};
  plan.is_mma ? call.multiply_by_mma(plan.shape) : call.multiply(plan.shape);
  if constexpr (Operand::kScaled) {
    if (copies) {
      const auto grid = static_cast<unsigned>(std::min<std::int64_t>(rows, 4 * properties(device).sm_count));
      launch_behind(activated_copy_kernel, grid, kCopyThreads, 0, stream, rows, gemm.G * gemm.rows, gemm.source_length, from,
                    activation.snake, header, wide.exact().wide.words, copy.as<float>());
      check_launch("conv tensor_core: preconverted snake");
    }
  }
  wide.launch(header, &weights->largest);
}

/// The plan's tiling for another number of samples.
template <class Operand>
PreconvertedTiling tiling_of(const PreconvertedPlan& plan, const TapGemm& gemm, const DeviceProperties& gpu) {
  const auto shape = static_cast<std::size_t>(plan.shape);
  if (plan.is_mma)
    return make_mma_tiling(gemm, mma_shapes(Operand::kParts)[shape], Operand::kParts, int{sizeof(typename Operand::Source)},
                           plan.tiling.slices, gpu.sm_count, gpu.shared_bytes_per_block);
  return make_preconverted_tiling(gemm, preconverted_shapes(Operand::kParts)[shape], plan.tiling.slices, gpu.sm_count,
                                  gpu.shared_bytes_per_block);
}

template <class Operand>
void pack_as(const ConvProblem& problem, ConvDirection direction, const PreconvertedTiling& tiling, const void* w, void* packed,
             cudaStream_t stream) {
  using T = typename Operand::Source;
  const TapGemm gemm = make_tap_gemm(problem, direction);
  auto* header = static_cast<OperandHeader*>(packed);
  const auto* weights = static_cast<const T*>(w);
  // Rows and taps that are multiplied though the problem has none; columns beyond it are not stored, whatever they are.
  const bool full = gemm.rows % (kPreconvertedBlocks * kPreconvertedRows) == 0 && !has_gaps(gemm);
  const std::int64_t zeros = kOperandHeaderBytes + tiling.packed_bytes;
  if (!full) CHECK_CUDA(cudaMemsetAsync(packed, 0, static_cast<std::size_t>(zeros), stream));
  if (full || Operand::kScaled) begin_weight_words<Operand>(problem, weights, &header->largest, stream);
  const bool is_forward = direction == ConvDirection::forward;
  const PackOrder order(gemm, tiling, problem, is_forward);
  preconverted_pack_kernel<Operand><<<static_cast<unsigned>(order.blocks), kPreconvertedPackThreads, 0, stream>>>(
      gemm, tiling, order, problem, is_forward, weights, header, reinterpret_cast<unsigned char*>(header + 1));
  check_launch("conv tensor_core: preconverted weights");
}

}  // namespace

void preconverted_pack_weights(const ConvProblem& problem, ConvDirection direction, Precision precision,
                               const PreconvertedPlan& plan, const void* w, void* packed, cudaStream_t stream) {
  with_operand(problem, precision,
               [&]<class Operand>() { pack_as<Operand>(problem, direction, plan.tiling, w, packed, stream); });
}

void preconverted_gather(const ConvProblem& problem, ConvDirection direction, Precision precision, const PreconvertedPlan& plan,
                         const void* source, const SourceActivation& activation, const void* w, const void* packed,
                         const void* bias, void* out, const Epilogue& epilogue, int device, cudaStream_t stream) {
  const DeviceProperties& gpu = properties(device);
  with_operand(problem, precision, [&]<class Operand>() {
    using T = typename Operand::Source;
    const bool is_forward = direction == ConvDirection::forward;
    const std::int64_t x = problem.C_in * problem.L_in, y = problem.C_out * problem.L_out;  // elements per sample
    ConvProblem piece = problem;
    for (std::int64_t n = 0; n < problem.N; n += plan.samples) {
      piece.N = std::min(plan.samples, problem.N - n);
      const PreconvertedTiling tiling =
          piece.N == plan.samples ? plan.tiling : tiling_of<Operand>(plan, make_tap_gemm(piece, direction), gpu);
      gather_as<Operand>(piece, direction, plan, tiling, static_cast<const T*>(source) + n * (is_forward ? x : y), activation,
                         w, packed, bias, static_cast<T*>(out) + n * (is_forward ? y : x), epilogue, device, stream);
    }
  });
}

}  // namespace polyphase::cuda::tensor_core
