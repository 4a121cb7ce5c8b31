#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"

#include <algorithm>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/kernel.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/pack_weights.cuh"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/recompute.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Calls run(operand) with the operand that a problem's numbers become.
template <class Run>
void with_operand(const ConvProblem& problem, Precision precision, const Run& run) {
  if (problem.dtype == DType::f16) return run(WideHalf{});
  if (problem.dtype == DType::bf16) return run(WideBrain{});
  if (precision == Precision::tf32) return run(WideScaled{});
  return run(WideSplit{});
}

/// Where a launch's memory begins: header, flags, the source as operand, partial sums.
struct Workspace {
  std::int64_t flags, operand, partial, bytes;
  Workspace(const TapGemm& form, const WideSteps& steps) {
    flags = kOperandHeaderBytes;
    operand = (flags + form.G * steps.source.flags * 4 + 255) / 256 * 256;
    partial = operand + steps.source.bytes(form.G);
    bytes = partial + steps.partial_bytes;
  }
};

/// What the kernels of one call have in common.
template <class Operand>
struct Call {
  using T = typename Operand::Source;
  TapGemm form;
  const WideSteps& steps;
  const Epilogue& epilogue;
  const OperandHeader* weights;
  const T* bias;
  T* out;
  unsigned char* workspace;
  Workspace at;
  cudaStream_t stream;
  WideExact<T> exact;

  template <int kN, bool kAlongPositions>
  void multiply() const {
    auto* kernel = wide_kernel<Operand, kN, kAlongPositions>;
    allow_shared_memory(kernel, steps.shared_bytes);
    const auto* header = reinterpret_cast<const OperandHeader*>(workspace);
    auto* partial = reinterpret_cast<float4*>(workspace + at.partial);
    launch_behind(kernel, steps.grid, kWideThreads, static_cast<std::size_t>(steps.shared_bytes), stream, form, steps, epilogue,
                  workspace + at.operand, reinterpret_cast<const unsigned char*>(weights + 1), bias, out, partial, header,
                  weights, exact);
    check_launch("conv tensor_core: wide");
    if (steps.slices == 1) return;
    launch_behind(wide_reduce_kernel<Operand, kN, kAlongPositions>, static_cast<unsigned>(steps.tiles), kWideConsumers, 0,
                  stream, form, steps, epilogue, bias, out, partial, header, weights, exact);
    check_launch("conv tensor_core: wide slices");
  }

  /// By cuda/conv/sm80: `shape` as mma_shapes() counts them.
  void multiply_by_mma(int shape) const {
    const auto* header = reinterpret_cast<const OperandHeader*>(workspace);
    const auto* packed = reinterpret_cast<const unsigned char*>(weights + 1);
    auto* partial = reinterpret_cast<float4*>(workspace + at.partial);
    mma_multiply<Operand>(
        {form, steps, epilogue, workspace + at.operand, packed, bias, out, partial, header, weights, exact, stream}, shape);
  }

  /// `shape` as wide_shapes() counts them.
  void multiply(int shape) const {
    constexpr int kMost = Operand::kSplit ? 128 : 256;
    if (shape == 0) return multiply<kMost, false>();
    if (shape == 1) return multiply<kMost, true>();
    if constexpr (!Operand::kSplit) return multiply<128, false>();
  }
};

/// A zero beside an infinite or missing number gives NaN: it matters where operands hold zeros that the problem has not.
bool has_gaps(const TapGemm& form) { return form.full_classes < form.classes || form.full_planes < form.planes; }

/// Whether numbers of the source can spoil sums.
template <class Operand>
bool needs_flags(const TapGemm& form) {
  return Operand::kScaled || has_gaps(form);
}

/// operand = the source, header and flags what is to be known of it.
template <class Operand>
void prepare(const TapGemm& form, const WideSteps& steps, const typename Operand::Source* source, OperandHeader* header,
             std::uint32_t* flags, unsigned char* operand, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(source_blocks(form, steps.source));
  const std::int64_t flag_count = form.G * steps.source.flags;
  if constexpr (Operand::kScaled) {
    sample_source(form, source, header, stream, flags, flag_count);
    launch_behind(source_kernel<Operand>, blocks, kSourceThreads, 0, stream, form, steps.source, source, header, flags,
                  operand);
  } else {
    const bool flagged = needs_flags<Operand>(form);
    if (flagged) CHECK_CUDA(cudaMemsetAsync(header, 0, kOperandHeaderBytes + static_cast<std::size_t>(flag_count) * 4, stream));
    source_kernel<Operand>
        <<<blocks, kSourceThreads, 0, stream>>>(form, steps.source, source, header, flagged ? flags : nullptr, operand);
  }
  check_launch("conv tensor_core: wide source");
}

/// As many samples as `problem` has, cut as `steps` says.
template <class Operand>
void gather_as(const ConvProblem& problem, ConvDirection direction, const WidePlan& plan, const WideSteps& steps,
               const void* source, const void* w, const void* packed, const void* bias, void* out, const Epilogue& epilogue,
               int device, cudaStream_t stream) {
  using T = typename Operand::Source;
  const TapGemm form = make_tap_gemm(problem, direction);
  const Workspace at(form, steps);
  const Buffer buffer(static_cast<std::size_t>(at.bytes), device);
  auto* workspace = buffer.as<unsigned char>();
  auto* header = reinterpret_cast<OperandHeader*>(workspace);
  auto* flags = reinterpret_cast<std::uint32_t*>(workspace + at.flags);
  const auto* from = static_cast<const T*>(source);
  const auto* weights = static_cast<const OperandHeader*>(packed);
  const bool is_forward = direction == ConvDirection::forward;
  prepare<Operand>(form, steps, from, header, flags, workspace + at.operand, stream);
  const WideExact<T> exact{problem, is_forward, from, static_cast<const T*>(w), needs_flags<Operand>(form) ? flags : nullptr,
                           header};
  const Call<Operand> call{form,      steps, epilogue, weights, static_cast<const T*>(bias), static_cast<T*>(out),
                           workspace, at,    stream,   exact};
  plan.is_mma ? call.multiply_by_mma(plan.shape) : call.multiply(plan.shape);
}

/// The plan's steps for another number of samples.
template <class Operand>
WideSteps steps_of(const WidePlan& plan, const TapGemm& form, const DeviceProperties& gpu) {
  const auto shape = static_cast<std::size_t>(plan.shape);
  if (plan.is_mma)
    return make_mma_steps(form, mma_shapes(Operand::kParts)[shape], Operand::kParts, int{sizeof(typename Operand::Source)},
                          plan.steps.slices, gpu.sm_count, gpu.shared_bytes_per_block);
  return make_wide_steps(form, wide_shapes(Operand::kParts)[shape], plan.steps.slices, gpu.sm_count,
                         gpu.shared_bytes_per_block);
}

template <class Operand>
void pack_as(const ConvProblem& problem, ConvDirection direction, const WideSteps& steps, const void* w, void* packed,
             cudaStream_t stream) {
  using T = typename Operand::Source;
  const TapGemm form = make_tap_gemm(problem, direction);
  auto* header = static_cast<OperandHeader*>(packed);
  const auto* weights = static_cast<const T*>(w);
  const std::int64_t count = problem.C_in * problem.channels_out_per_group() * problem.K;
  // Rows and taps that are multiplied though the problem has none; columns beyond it are not stored, whatever they are.
  const bool full = form.rows % (kWideBlocks * kWideRows) == 0 && !has_gaps(form);
  const std::int64_t zeros = kOperandHeaderBytes + (full ? 0 : steps.packed_bytes);
  CHECK_CUDA(cudaMemsetAsync(packed, 0, static_cast<std::size_t>(zeros), stream));
  if constexpr (Operand::kScaled) {
    largest_kernel<<<static_cast<unsigned>(largest_blocks(count)), kLargestThreads, 0, stream>>>(weights, count, header);
    check_launch("conv tensor_core: wide largest weight");
  }
  const bool is_forward = direction == ConvDirection::forward;
  const PackSteps pack = make_pack_steps(problem, is_forward);
  wide_pack_kernel<Operand><<<static_cast<unsigned>(pack.blocks), kPackThreads, 0, stream>>>(
      form, steps, pack, problem, is_forward, weights, header, reinterpret_cast<unsigned char*>(header + 1));
  check_launch("conv tensor_core: wide weights");
}

}  // namespace

void wide_pack_weights(const ConvProblem& problem, ConvDirection direction, Precision precision, const WidePlan& plan,
                       const void* w, void* packed, cudaStream_t stream) {
  with_operand(problem, precision,
               [&]<class Operand>(Operand) { pack_as<Operand>(problem, direction, plan.steps, w, packed, stream); });
}

void wide_gather(const ConvProblem& problem, ConvDirection direction, Precision precision, const WidePlan& plan,
                 const void* source, const void* w, const void* packed, const void* bias, void* out, const Epilogue& epilogue,
                 int device, cudaStream_t stream) {
  const DeviceProperties& gpu = properties(device);
  with_operand(problem, precision, [&]<class Operand>(Operand) {
    using T = typename Operand::Source;
    const bool is_forward = direction == ConvDirection::forward;
    const std::int64_t x = problem.C_in * problem.L_in, y = problem.C_out * problem.L_out;  // elements of a sample
    ConvProblem piece = problem;
    for (std::int64_t n = 0; n < problem.N; n += plan.samples) {
      piece.N = std::min(plan.samples, problem.N - n);
      const WideSteps steps =
          piece.N == plan.samples ? plan.steps : steps_of<Operand>(plan, make_tap_gemm(piece, direction), gpu);
      gather_as<Operand>(piece, direction, plan, steps, static_cast<const T*>(source) + n * (is_forward ? x : y), w, packed,
                         bias, static_cast<T*>(out) + n * (is_forward ? y : x), epilogue, device, stream);
    }
  });
}

}  // namespace polyphase::cuda::tensor_core
