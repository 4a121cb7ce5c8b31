#include "conv/workspace.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "cuda/conv/tensor_core/wgrad/few.hpp"
#include "cuda/conv/tensor_core/wgrad/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/wgrad/prepare.cuh"
#include "cuda/conv/tensor_core/wgrad/sums.cuh"
#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

template <class T>
void wgrad_by_mma(const WgradCall& call, Precision precision) {
  mma_wgrad_as(call, precision);
  recompute_wgrad<T>(call, {});
}

bool is_aligned(const void* x, const void* y) {
  return (reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y)) % 16 == 0;
}

/// The tiling of the wide kernel by rows; no stages where it does not do the problem.
WgradTiling wide_tiling_of(const WgradCall& call, Precision precision) {
  if (call.tiling == nullptr) return {};
  const DeviceProperties& gpu = properties(call.device);
  return make_wide_wgrad_tiling(*call.source.problem, precision == Precision::tf32 ? 2 : 3, gpu.sm_count,
                                gpu.shared_bytes_per_block, conv_workspace_limit(), is_aligned(call.source.x, call.source.y));
}

/// Samples x and y, and holds what call.scales and call.wide point to: counts of jobs and the wide kernel's marks follow the
/// scales. They are zeros at first.
class WgradSamples {
 public:
  explicit WgradSamples(WgradCall& call)
      : jobs_(call.tiling != nullptr ? call.tiling->jobs : 0),
        counts_(jobs_ + mark_counts(call)),
        buffer_(sizeof(WgradScales) + static_cast<std::size_t>(counts_) * sizeof(SmallCount), call.device) {
    const ConvProblem& p = call.problem;
    call.scales = buffer_.as<WgradScales>();
    call.wide = WideWeights(p, call.wide_tiling);
    call.wide.any = reinterpret_cast<std::uint32_t*>(reinterpret_cast<SmallCount*>(call.scales + 1) + jobs_);
    launch_behind(&wgrad_scales_kernel, 2 * kSampleGroups, kSampleThreads, 0, call.stream,
                  WgradSampled{static_cast<const float*>(call.x), p.N, p.C_in, p.L_in},
                  WgradSampled{static_cast<const float*>(call.y), p.N, p.C_out, p.L_out}, counts_, call.scales);
    check_launch("conv tensor_core: wgrad scales");
  }

 private:
  [[nodiscard]] static std::int64_t mark_counts(const WgradCall& call) {
    const std::size_t bytes = WideWeights(call.problem, call.wide_tiling).word_count() * sizeof(std::uint32_t);
    return static_cast<std::int64_t>((bytes + sizeof(SmallCount) - 1) / sizeof(SmallCount));
  }
  std::int64_t jobs_, counts_;
  Buffer buffer_;
};

void wgrad_f32(WgradCall call, Precision precision) {
  const WgradTiling wide_tiling = wide_tiling_of(call, precision);
  if (wide_tiling.stages > 0) call.wide_tiling = &wide_tiling;
  const WgradSamples samples(call);
  if (call.tiling == nullptr)
    wgrad_by_mma<float>(call, precision);
  else
    precision == Precision::tf32 ? wgrad_tf32(call) : wgrad_split(call);
  wgrad_wide(call, precision);
}

/// By rows where the call has a tiling, else on mma.sync.
void wgrad_call(const WgradCall& call, Precision precision) {
  if (call.problem.dtype == DType::f32) return wgrad_f32(call, precision);
  const bool is_half = call.problem.dtype == DType::f16;
  if (call.tiling == nullptr)
    return is_half ? wgrad_by_mma<__half>(call, precision) : wgrad_by_mma<__nv_bfloat16>(call, precision);
  is_half ? wgrad_f16(call) : wgrad_bf16(call);
}

/// The samples of x and y, joined. In memory of its own.
class Joined {
 public:
  Joined(const JoinedSamples& joined, const WgradCall& call)
      : problem_(joined.problem),
        x_(bytes_of(problem_.C_in, problem_.L_in), call.device),
        y_(bytes_of(problem_.C_out, problem_.L_out), call.device) {
    const ConvProblem& p = call.problem;
    copy_joined(x_.as<void>(), call.x, size_of(p.dtype), p.N, p.C_in, p.L_in, joined.pitch, problem_.L_in, call.stream);
    copy_joined(y_.as<void>(), call.y, size_of(p.dtype), p.N, p.C_out, p.L_out, joined.pitch * p.S, problem_.L_out,
                call.stream);
  }
  [[nodiscard]] WgradSource source() const { return {&problem_, x_.as<void>(), y_.as<void>()}; }

 private:
  [[nodiscard]] std::size_t bytes_of(std::int64_t C, std::int64_t L) const {
    return static_cast<std::size_t>(C * L) * size_of(problem_.dtype);
  }
  ConvProblem problem_;
  Buffer x_, y_;
};

void wgrad_as_planned(WgradCall call, Precision precision) {
  const ConvProblem& problem = call.problem;
  const DeviceProperties& gpu = properties(call.device);
  if (uses_mma(gpu.arch())) return wgrad_call(call, precision);
  const int parts = problem.dtype == DType::f32 && precision != Precision::tf32 ? 2 : 1;
  const WgradPlan plan = make_wgrad_plan(problem, parts, static_cast<int>(size_of(problem.dtype)), gpu.sm_count,
                                         gpu.shared_bytes_per_block, conv_workspace_limit(), is_aligned(call.x, call.y));
  if (plan.tiling.stages > 0) call.tiling = &plan.tiling;
  if (!plan.joined) return wgrad_call(call, precision);
  const Joined joined(*plan.joined, call);
  call.source = joined.source();
  wgrad_call(call, precision);
}

}  // namespace

void wgrad(const ConvProblem& problem, Precision precision, const void* x, const void* y, void* w, int device,
           cudaStream_t stream) {
  if (problem.N == 0) {
    const std::int64_t weights = problem.C_in * (problem.C_out / problem.G) * problem.K;
    CHECK_CUDA(cudaMemsetAsync(w, 0, static_cast<std::size_t>(weights) * size_of(problem.dtype), stream));
    return;
  }
  const WgradCall call{problem, x, y, w, nullptr, device, stream};
  const FewTerms few = few_terms(problem, precision);
  if (few != FewTerms::all) wgrad_as_planned(call, precision);
  if (few != FewTerms::none) wgrad_few(call);
}

void wgrad_by(const WgradTiling& tiling, const ConvProblem& problem, Precision precision, const void* x, const void* y, void* w,
              int device, cudaStream_t stream) {
  wgrad_call({problem, x, y, w, nullptr, device, stream, &tiling}, precision);
}

void wgrad_wide_by(const WgradTiling& tiling, const ConvProblem& problem, Precision precision, const void* x, const void* y,
                   void* w, int device, cudaStream_t stream) {
  WgradCall call{problem, x, y, w, nullptr, device, stream};
  call.wide_tiling = &tiling;
  const WgradSamples samples(call);
  static constexpr std::uint32_t kAny = kAllMarked;
  CHECK_CUDA(cudaMemcpyAsync(call.wide.any, &kAny, sizeof(kAny), cudaMemcpyHostToDevice, stream));
  wgrad_wide(call, precision);
}

}  // namespace polyphase::cuda::tensor_core
