// Forward and dgrad of marked blocks with the exponents of f32.

#include <algorithm>
#include <cstdint>

#include "cuda/conv/tensor_core/recompute/by_tile/by_tile.hpp"
#include "cuda/conv/tensor_core/recompute/count.cuh"
#include "cuda/conv/tensor_core/recompute/wide.hpp"
#include "cuda/conv/tensor_core/recompute/wide_outputs.cuh"
#include "cuda/conv/tensor_core/recompute/wide_tile.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

static_assert(kWideRows == kWideColumns && kWideWidth == kWidePositions);
constexpr int kWideBlocksOfMultiprocessor = 2;
// The largest numbers are scaled to these powers of two: sums stay below 2^127, and their smallest parts above 2^-126.
constexpr int kWideSourceTarget = 50, kWideWeightTarget = 20;

/// Where a block of outputs is.
struct WidePlace {
  std::int64_t n, g, column, position;
  __device__ WidePlace(std::int64_t n, std::int64_t g, std::int64_t column, std::int64_t position)
      : n(n), g(g), column(column), position(position) {}
  __device__ WidePlace(const TapGemm& gemm, const WideBlocks& blocks, std::int64_t index) {
    position = gemm.position_begin + index % blocks.position_blocks * kWidePositions;
    index /= blocks.position_blocks;
    column = index % blocks.column_blocks * kWideColumns;
    index /= blocks.column_blocks;
    n = index / gemm.G, g = index % gemm.G;
  }
};

/// What is added from step to step.
struct GatherSteps {
  std::int64_t row;                // weights, from row to row
  std::int64_t window_e;           // positions of the source, from window to window,
  std::int64_t plane_e;            // in addition from plane to plane,
  std::int64_t first_e;            // and in addition back to the first
  int window_k, plane_k, first_k;  // the same for taps

  GatherSteps(const TapGemm& gemm, const ExactSource<>& exact)
      : row((exact.is_forward ? exact.problem.channels_out_per_group() : 1) * exact.problem.K),
        window_e(gemm.source_stride * gemm.tap_step),
        plane_e(gemm.source_plane_step - gemm.taps * window_e),
        first_e(-gemm.planes * gemm.source_plane_step),
        window_k(static_cast<int>(exact.is_forward ? -gemm.phase_classes : gemm.phase_classes)),
        plane_k((exact.is_forward ? 0 : 1) - static_cast<int>(gemm.taps) * window_k),
        first_k(exact.is_forward ? 0 : -static_cast<int>(gemm.planes)) {}
};

/// What a thread loads: A is the weights of one column and four rows, B the source of one position and eight rows. All taps of
/// 16 rows come before the next 16, so that sectors are found in L1. What the problem says is read where it is used: it costs
/// no registers there.
class GatherLoader {
 public:
  __device__ GatherLoader(const TapGemm& gemm, const ExactSource<>& exact, const GatherSteps& steps, const WidePlace& place)
      : gemm_(gemm), exact_(exact), steps_(steps) {
    const ConvProblem& problem = exact.problem;
    const std::int64_t column = place.column + a_column(), channel = column / gemm.classes;
    const std::int64_t ci = place.g * (problem.C_in / problem.G) + (exact.is_forward ? 0 : column);
    const std::int64_t co = exact.is_forward ? channel : 0;
    w_ = exact.w + (ci * (problem.C_out / problem.G) + co) * problem.K + a_row() * steps.row;
    k_ = exact.is_forward ? static_cast<int>(column - channel * gemm.classes + (gemm.taps - 1) * gemm.phase_classes) : 0;
    if (column >= gemm.columns) k_ = kNoTap;
    const std::int64_t position = place.position + b_position();
    const bool has_position = position < gemm.position_begin + gemm.position_count;
    source_ = exact.source + ((place.n * gemm.G + place.g) * gemm.rows + b_row()) * gemm.source_length;
    e_ = has_position ? gemm.source_stride * position + gemm.source_origin : -(std::int64_t{1} << 60);
  }

  [[nodiscard]] __device__ int steps() const {
    return static_cast<int>((gemm_.rows + kWideDepth - 1) / kWideDepth * gemm_.planes * gemm_.taps);
  }
  [[nodiscard]] __device__ static int a_place() { return a_column() * kWideRowBytes + a_row() * 2; }
  [[nodiscard]] __device__ static int b_place() { return b_position() * kWideRowBytes + b_row() * 2; }

  /// The next step's numbers; zeros where there are none.
  __device__ __forceinline__ void load(float (&a)[4], float (&b)[8]) {
    const bool has_tap = static_cast<unsigned>(k_) < static_cast<unsigned>(exact_.problem.K);
    const bool exists = static_cast<std::uint64_t>(e_) < static_cast<std::uint64_t>(gemm_.source_length);
    const int rows = static_cast<int>(gemm_.rows) - row_;
    const float* w = w_ + k_;
#pragma unroll
    for (int i = 0; i < 4; ++i, w += steps_.row) a[i] = ptx::load_or_zero(w, has_tap && a_row() + i < rows);
    const float* source = source_ + e_;
#pragma unroll
    for (int i = 0; i < 8; ++i, source += gemm_.source_length)
      b[i] = gemm_.activated(ptx::load_or_zero(source, exists && b_row() + i < rows));
    k_ += steps_.window_k;
    e_ += steps_.window_e;
    if (++window_ < static_cast<int>(gemm_.taps)) return;
    window_ = 0;
    k_ += steps_.plane_k;
    e_ += steps_.plane_e;
    if (++plane_ < static_cast<int>(gemm_.planes)) return;
    plane_ = 0;
    k_ += steps_.first_k;
    e_ += steps_.first_e;
    row_ += kWideDepth;
    w_ += kWideDepth * steps_.row;
    source_ += kWideDepth * gemm_.source_length;
  }

 private:
  static constexpr int kNoTap = -(1 << 30);
  [[nodiscard]] __device__ static int a_column() { return static_cast<int>(threadIdx.x) % kWideRows; }
  [[nodiscard]] __device__ static int a_row() { return static_cast<int>(threadIdx.x) / kWideRows * 4; }
  [[nodiscard]] __device__ static int b_position() { return static_cast<int>(threadIdx.x) % kWideWidth; }
  [[nodiscard]] __device__ static int b_row() { return static_cast<int>(threadIdx.x) / kWideWidth * 8; }

  const TapGemm& gemm_;
  const ExactSource<>& exact_;
  const GatherSteps& steps_;
  const float *w_, *source_;
  std::int64_t e_;  // position in the source
  int k_;           // tap
  int row_ = 0, plane_ = 0, window_ = 0;
};

/// The list's outputs. Not inlined, as the next one: they have registers of their own.
__device__ __noinline__ void store_list(const WideOutputs& outputs) {
  const WideBlocks& wide = outputs.exact.wide;
  const std::uint32_t listed = min(wide.words->listed, wide.list_size), step = gridDim.x * (kWideThreads / 32);
#pragma unroll 1
  for (std::uint32_t i = blockIdx.x + threadIdx.x / 32 * gridDim.x; i < listed; i += step)
    outputs.store_listed(wide.list[i], [&](std::int64_t n, std::int64_t g, std::int64_t column, std::int64_t of_begin) {
      return wide.marks[wide.block_of(outputs.gemm, n, g, column, of_begin)] != 0;
    });
}

/// The outputs of a block, whose sums are in `tile` and must be multiplied by 2^power. Returns how many this thread stored.
__device__ __noinline__ int store_block(const WideOutputs& outputs, std::int64_t block, const float* tile, int power) {
  const WidePlace place(outputs.gemm, outputs.exact.wide, block);
  int done = 0;
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) / 32; row < kWideRows; row += kWideThreads / 32) {
    if (place.column + row >= outputs.gemm.columns) break;
    const WideOutputs::Column of = outputs.column_of(place.n, place.g, place.column + row);
#pragma unroll 1
    for (int own = static_cast<int>(threadIdx.x) % 32; own < kWideWidth; own += 32)
      done += outputs.store(of, place.position + own, ldexpf(tile[row * kWidePitch + own], power));
  }
  return done;
}

template <int kParts>
__global__ void __launch_bounds__(kWideThreads, kWideBlocksOfMultiprocessor)
    wide_gather_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ ExactSource<> exact,
                       const __grid_constant__ GatherSteps steps, const __grid_constant__ Epilogue epilogue, const float* bias,
                       float* out, const OperandHeader* source, const std::uint32_t* largest_weight) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ std::int64_t listed[kWideThreads];
  __shared__ int count;
  wait_for_grid_before();
  const WideBlocks& wide = exact.wide;
  if (wide.words->any == 0) return;
  const int source_power = source_exponent(source, kWideSourceTarget);
  const int weight_power = scale_exponent(*largest_weight, kWideWeightTarget);
  const int power = -source_power - weight_power;
  const WideOutputs outputs{gemm, exact, epilogue, bias, out};
  store_list(outputs);
  int done = 0;
  const std::int64_t blocks = gemm.N * gemm.G * wide.column_blocks * wide.position_blocks;
#pragma unroll 1
  for (std::int64_t first = blockIdx.x; first < blocks; first += std::int64_t{gridDim.x} * kWideThreads) {
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const std::int64_t own = first + std::int64_t{threadIdx.x} * gridDim.x;
    if (own < blocks && wide.marks[own] != 0) listed[atomicAdd(&count, 1)] = own;  // each is computed by itself
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      WideTileSums sums = {};
      {
        GatherLoader loader(gemm, exact, steps, WidePlace(gemm, wide, listed[i]));
        sum_wide<kParts>(loader, loader.steps(), power_of_two(weight_power), power_of_two(source_power), memory, sums);
      }
      auto* tile = reinterpret_cast<float*>(memory);
      store_sums(sums, tile);
      __syncthreads();
      done += store_block(outputs, listed[i], tile, power);
      __syncthreads();
    }
  }
  done = __reduce_add_sync(0xffffffffU, done);
  if (threadIdx.x % 32 == 0 && done != 0) count_recomputed(static_cast<unsigned>(done));
}

template <int kParts>
void launch_wide(const WideCall& call, const OperandHeader* source, const std::uint32_t* largest_weight) {
  constexpr int kShared = 2 * WideStage<kParts>::kBytes;
  const WideBlocks& wide = call.exact.wide;
  const std::int64_t blocks = call.gemm.N * call.gemm.G * wide.column_blocks * wide.position_blocks;
  const auto grid = std::min<std::int64_t>(blocks, kWideBlocksOfMultiprocessor * properties(call.device).sm_count);
  auto* kernel = wide_gather_kernel<kParts>;
  allow_shared_memory(kernel, kShared, kWideSharedPercent);
  launch_behind(kernel, static_cast<unsigned>(grid), kWideThreads, kShared, call.stream, call.gemm, call.exact,
                GatherSteps(call.gemm, call.exact), call.epilogue, call.bias, call.out, source, largest_weight);
  check_launch("conv tensor_core: wide");
}

/// A call's memory, for the wide kernel or the by_tile kernel: sizes, and where things begin, in bytes. None for 16-bit
/// tensors.
struct WideMemory {
  std::int64_t column_blocks, position_blocks;
  std::size_t words = 0;  // zeros at first
  std::int64_t marks = sizeof(WideBlocks::Words), list = 0, bytes = 0;
  std::uint32_t list_size = 0;

  WideMemory(const WideCall& call, const std::optional<ByTileTiling>& by_tile)
      : column_blocks((call.gemm.columns + kWideColumns - 1) / kWideColumns),
        position_blocks((call.gemm.position_count + kWidePositions - 1) / kWidePositions) {
    const std::int64_t blocks = call.gemm.N * call.gemm.G * column_blocks * position_blocks;
    if (call.exact.problem.dtype != DType::f32 || blocks == 0) return;
    if (by_tile) {
      const ByTileMemory of(call.gemm, *by_tile);
      words = static_cast<std::size_t>(of.zeros) / sizeof(std::uint32_t);
      marks = of.marks, list = of.list, bytes = of.bytes, list_size = of.list_size;
      return;
    }
    words = sizeof(WideBlocks::Words) / 4 + static_cast<std::size_t>((blocks + 7) / 8 * 2);
    list = static_cast<std::int64_t>(words * sizeof(std::uint32_t));
    list_size = static_cast<std::uint32_t>(std::min(kMostListed, blocks * kListedOfBlock));
    bytes = list + list_size * static_cast<std::int64_t>(sizeof(std::int64_t));
  }
};

}  // namespace

WideGather::WideGather(const Gather& call)
    : WideGather(WideCall{call.gemm, exact_source<float>(call), call.precision, static_cast<const float*>(call.bias),
                          static_cast<float*>(call.out), call.epilogue, call.device, call.stream}) {}

WideGather::WideGather(const WideCall& call)
    : call_(call),
      by_tile_(call.exact.problem.dtype == DType::f32 ? by_tile_tiling(call) : std::nullopt),
      memory_(static_cast<std::size_t>(WideMemory(call, by_tile_).bytes), call.device) {
  const WideMemory sizes(call, by_tile_);
  words_ = sizes.words;
  if (words_ == 0) return;
  auto* const memory = memory_.as<unsigned char>();
  call_.exact.wide = {reinterpret_cast<WideBlocks::Words*>(memory),
                      memory + sizes.marks,
                      reinterpret_cast<std::int64_t*>(memory + sizes.list),
                      sizes.list_size,
                      sizes.column_blocks,
                      sizes.position_blocks};
}

Marks WideGather::marks(const std::uint32_t* small_weights) const {
  const ConvProblem& problem = call_.exact.problem;
  const std::int64_t weights = problem.C_in * problem.channels_out_per_group() * problem.K;
  return {{memory_.as<std::uint32_t>(), words_},
          by_tile_.has_value(),
          small_weights,
          static_cast<std::uint32_t>((weights + 3) / 4)};
}

void WideGather::launch(const OperandHeader* source, const std::uint32_t* largest_weight) const {
  if (words_ == 0) return;
  if (by_tile_) return launch_by_tile(call_, *by_tile_, memory_.as<unsigned char>(), source);
  if (call_.precision == Precision::tf32) return launch_wide<2>(call_, source, largest_weight);
  launch_wide<3>(call_, source, largest_weight);
}

}  // namespace polyphase::cuda::tensor_core
