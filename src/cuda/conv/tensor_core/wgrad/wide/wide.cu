#include "cuda/conv/tensor_core/wgrad/wide/wide.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/recompute/wide_tile.cuh"
#include "cuda/conv/tensor_core/wgrad/recompute.cuh"
#include "cuda/conv/tensor_core/wgrad/types.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

static_assert(kWideInputs == kWideRows && kWideOutputs == kWideWidth);
constexpr int kWgradBlocksOfMultiprocessor = 2;
constexpr int kTileFloats = kWideRows * kWideWidth;

/// The weights of a block: of one tap.
struct WideBlock {
  std::int64_t g, ci, co, k;  // the first channels, of the group
  __device__ WideBlock(const ConvProblem& problem, const WideWeights& wide, std::int64_t index) {
    k = index % problem.K;
    index /= problem.K;
    co = index % wide.output_blocks * kWideOutputs;
    index /= wide.output_blocks;
    ci = index % wide.input_blocks * kWideInputs;
    g = index / wide.input_blocks;
  }
};

/// What a thread loads: A is four positions of a channel of x, B eight of a channel of y, 16 positions of a sample a step.
class WgradLoader {
 public:
  /// Steps [begin, end) of all: those of a sample follow each other.
  __device__ WgradLoader(const ConvProblem& problem, const float* x, const float* y, const WideBlock& block)
      : problem_(problem) {
    const std::int64_t first = block.k * problem.D - problem.P_l;
    const std::int64_t lowest = max(std::int64_t{0}, -floor_divide(first, problem.S));
    width_ = min(problem.L_in - 1, floor_divide(problem.L_out - 1 - first, problem.S)) - lowest + 1;
    const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
    const std::int64_t ci = block.ci + a_channel(), co = block.co + b_channel();
    has_a_ = ci < in, has_b_ = co < out;
    x_ = x + (block.g * in + ci) * problem.L_in + lowest + a_position();
    y_ = y + (block.g * out + co) * problem.L_out + first + problem.S * (lowest + b_position());
  }
  [[nodiscard]] __device__ std::int64_t steps_of_sample() const {
    return max(width_ + kWideDepth - 1, std::int64_t{0}) / kWideDepth;
  }
  __device__ void start(std::int64_t step) {
    const std::int64_t n = step / steps_of_sample();
    const std::int64_t first = (step - n * steps_of_sample()) * kWideDepth;
    left_ = width_ - first;
    x_ += n * problem_.C_in * problem_.L_in + first;
    y_ += n * problem_.C_out * problem_.L_out + first * problem_.S;
  }
  [[nodiscard]] __device__ static int a_place() { return a_channel() * kWideRowBytes + a_position() * 2; }
  [[nodiscard]] __device__ static int b_place() { return b_channel() * kWideRowBytes + b_position() * 2; }

  /// The next step's numbers; zeros where there are none.
  __device__ __forceinline__ void load(float (&a)[4], float (&b)[8]) {
    const int left = static_cast<int>(min(left_, std::int64_t{kWideDepth}));
    const float* x = x_;
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = ptx::load_or_zero(x + i, has_a_ && a_position() + i < left);
    const float* y = y_;
#pragma unroll
    for (int i = 0; i < 8; ++i, y += problem_.S) b[i] = ptx::load_or_zero(y, has_b_ && b_position() + i < left);
    left_ -= kWideDepth;
    x_ += kWideDepth;
    y_ += kWideDepth * problem_.S;
    if (left_ > 0) return;
    // Continues with the next sample, after the last step of this one.
    const std::int64_t past = steps_of_sample() * kWideDepth;
    left_ = width_;
    x_ += problem_.C_in * problem_.L_in - past;
    y_ += problem_.C_out * problem_.L_out - past * problem_.S;
  }

 private:
  [[nodiscard]] __device__ static int a_channel() { return static_cast<int>(threadIdx.x) / 4; }
  [[nodiscard]] __device__ static int a_position() { return static_cast<int>(threadIdx.x) % 4 * 4; }
  [[nodiscard]] __device__ static int b_channel() { return static_cast<int>(threadIdx.x) / 2; }
  [[nodiscard]] __device__ static int b_position() { return static_cast<int>(threadIdx.x) % 2 * 8; }

  const ConvProblem& problem_;
  const float *x_, *y_;            // of this thread, in the next step
  std::int64_t width_, left_ = 0;  // positions of a sample, and those from the next step on
  bool has_a_, has_b_;
};

/// Whether this block is the last of `slices` that has done its part; what the others wrote can be read then.
__device__ __forceinline__ bool is_last_slice(std::uint32_t* done, std::uint32_t slices) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(done, 1U) == slices - 1;
  __syncthreads();
  __threadfence();
  return is_last;
}

/// What weights are stored from.
struct WideGradient {
  const ConvProblem& problem;
  const WideWeights& wide;
  const float *x, *y;
  float* w;
  const WgradScales* scales;

  /// A warp's sums of one channel of x and 32 of y become weights; infinite ones and NaN are summed again by FFMA.
  __device__ __forceinline__ void store(const WideBlock& block, std::int64_t ci, std::int64_t co, float sum) const {
    constexpr float kLargest = 3.402823466e38F;
    const std::int64_t in = problem.C_in / problem.G, out = problem.C_out / problem.G;
    const bool exists = ci < in && co < out, is_unusual = exists && !(fabsf(sum) <= kLargest);
    const std::int64_t at = ((block.g * in + ci) * out + co) * problem.K + block.k;
    if (exists && !is_unusual) w[at] = sum;
    const unsigned done = __ballot_sync(0xffffffffU, exists && !is_unusual);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0 && done != 0) count_recomputed(static_cast<unsigned>(__popc(done)));
    for (unsigned lanes = __ballot_sync(0xffffffffU, is_unusual); lanes != 0; lanes &= lanes - 1)
      recompute(WgradTeam{lane, 32}, problem, x, y, w, __shfl_sync(0xffffffffU, at, __ffs(static_cast<int>(lanes)) - 1),
                scales);
  }
};

/// The weights of a block: its sums in `tile`, of several slices all of `partial`, times 2^power. Not inlined: it has registers
/// of its own.
__device__ __noinline__ void store_block(const WideGradient& gradient, std::int64_t index, int slices, const float* partial,
                                         const float* tile, int power) {
  const WideBlock block(gradient.problem, gradient.wide, index);
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x); at < kTileFloats; at += kWideThreads) {
    const int row = at / kWideWidth, column = at % kWideWidth;
    float sum = tile[row * kWidePitch + column];
    if (slices > 1) {
      double all = 0;
      for (int s = 0; s < slices; ++s) all += static_cast<double>(__ldcg(partial + s * kTileFloats + at));
      sum = static_cast<float>(all);
    }
    gradient.store(block, block.ci + row, block.co + column, ldexpf(sum, power));
  }
}

/// Each item is a slice of a block's steps. The last slice of a block adds all of them up in order.
template <int kParts>
__global__ void __launch_bounds__(kWideThreads, kWgradBlocksOfMultiprocessor)
    wgrad_wide_kernel(const __grid_constant__ ConvProblem problem, const __grid_constant__ WideWeights wide, int slices,
                      const float* x, const float* y, float* w, float* partial, const WgradScales* scales) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ std::int64_t listed[kWideThreads];
  __shared__ int count;
  wait_for_grid_before();
  if (*wide.any == 0) return;
  const int x_power = scale_exponent(largest_of(scales->x_largest), kWideWgradTarget);
  const int y_power = scale_exponent(largest_of(scales->y_largest), kWideWgradTarget);
  auto* tile = reinterpret_cast<float*>(memory);
  const std::int64_t items = wide.blocks * slices;
#pragma unroll 1
  for (std::int64_t first = blockIdx.x; first < items; first += std::int64_t{gridDim.x} * kWideThreads) {
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const std::int64_t own = first + std::int64_t{threadIdx.x} * gridDim.x;
    if (own < items && wide.marks()[own / slices] != 0) listed[atomicAdd(&count, 1)] = own;  // each is computed by itself
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      WideTileSums sums = {};
      {
        const std::int64_t index = listed[i] / slices, slice = listed[i] - index * slices;
        WgradLoader loader(problem, x, y, WideBlock(problem, wide, index));
        const std::int64_t steps = problem.N * loader.steps_of_sample();
        const std::int64_t begin = steps * slice / slices, end = steps * (slice + 1) / slices;
        if (begin < end) loader.start(begin);
        sum_wide<kParts>(loader, static_cast<int>(end - begin), power_of_two(x_power), power_of_two(y_power), memory, sums);
      }
      store_sums(sums, tile);
      __syncthreads();
      const std::int64_t index = listed[i] / slices, slice = listed[i] - index * slices;
      float* const own_partial = partial + index * slices * kTileFloats;
      if (slices > 1) {
        for (int at = static_cast<int>(threadIdx.x); at < kTileFloats; at += kWideThreads)
          own_partial[slice * kTileFloats + at] = tile[at / kWideWidth * kWidePitch + at % kWideWidth];
        if (!is_last_slice(wide.done() + index, static_cast<std::uint32_t>(slices))) continue;
      }
      store_block({problem, wide, x, y, w, scales}, index, slices, own_partial, tile, -x_power - y_power);
      __syncthreads();
    }
  }
}

template <int kParts>
void launch_wide(const WgradCall& call) {
  constexpr int kShared = 2 * WideStage<kParts>::kBytes;
  const ConvProblem& problem = call.problem;
  const WideWeights& wide = call.wide;
  const std::int64_t most = kWgradBlocksOfMultiprocessor * properties(call.device).sm_count;
  const std::int64_t steps = problem.N * ((problem.L_in + kWideDepth - 1) / kWideDepth);
  const std::int64_t slices =
      std::clamp<std::int64_t>((most + wide.blocks - 1) / wide.blocks, 1, std::max<std::int64_t>(steps / 16, 1));
  const Buffer partial(slices > 1 ? static_cast<std::size_t>(wide.blocks * slices) * kTileFloats * sizeof(float) : 0,
                       call.device);
  auto* kernel = wgrad_wide_kernel<kParts>;
  allow_shared_memory(kernel, kShared, kWideSharedPercent);
  launch_behind(kernel, static_cast<unsigned>(std::min(wide.blocks * slices, most)), kWideThreads, kShared, call.stream,
                problem, wide, static_cast<int>(slices), static_cast<const float*>(call.x), static_cast<const float*>(call.y),
                static_cast<float*>(call.w), partial.as<float>(), static_cast<const WgradScales*>(call.scales));
  check_launch("conv tensor_core: wide wgrad");
}

std::int64_t blocks_of(std::int64_t channels, std::int64_t of_block) { return (channels + of_block - 1) / of_block; }

}  // namespace

WideWeights::WideWeights(const ConvProblem& problem, const WgradTiling* tiling)
    : by_rows(tiling != nullptr),
      input_blocks(blocks_of(problem.C_in / problem.G, kWideInputs)),
      output_blocks(blocks_of(problem.C_out / problem.G, kWideOutputs)),
      blocks(problem.G * input_blocks * output_blocks * problem.K) {
  if (tiling == nullptr) return;
  tiles = make_wgrad_tiles(problem, *tiling);
  blocks = tiling->jobs;
}

void wgrad_wide(const WgradCall& call, Precision precision) {
  if (call.wide.by_rows) return precision == Precision::tf32 ? wgrad_tf32_wide(call) : wgrad_split_wide(call);
  precision == Precision::tf32 ? launch_wide<2>(call) : launch_wide<3>(call);
}

}  // namespace polyphase::cuda::tensor_core
