#pragma once
// Converts a whole tensor once to an operand of wgmma in global memory: SourceLayout.
//
// Every tap, dilation, plane and alignment is then a start address that is a multiple of 16 bytes, and padding is stored zeros.
// The kernel that multiplies copies contiguous bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/sample.cuh"
#include "cuda/conv/tensor_core/operand/source_layout.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// How many numbers are too small to be split to 2^-22 of themselves. kNever is set if one has no operand at all: beyond the
/// largest half, or (any type) Inf or NaN, which a zero operand would turn into NaN.
inline constexpr std::uint32_t kNever = 0x80000000U;

/// Converts eight numbers to the 16 bytes of each part; returns their suspect count.
template <class Operand>
__device__ __forceinline__ std::uint32_t make_operand(const typename Operand::Source (&v)[kPreconvertedRows], float scale,
                                                      const SplitRange& range, uint4 (&parts)[Operand::kParts]) {
  std::uint32_t suspect_count = 0;
  std::uint32_t word[Operand::kParts][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (Operand::kScaled) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const Split split = range.of(v[2 * i + c]);
        suspect_count = split == Split::never ? suspect_count | kNever : suspect_count + (split == Split::small ? 1U : 0U);
      }
      const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
      const __half2 high = __floats2half2_rn(a, b);
      word[0][i] = *reinterpret_cast<const std::uint32_t*>(&high);
      if constexpr (Operand::kSplit) word[1][i] = low_parts(a, b, high);
    } else {
      const auto low = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&v[2 * i]));
      const auto high = static_cast<std::uint32_t>(*reinterpret_cast<const std::uint16_t*>(&v[2 * i + 1]));
      constexpr std::uint32_t kInfinity = Operand::kType == ptx::Tensor::f16 ? 0x7c00U : 0x7f80U;
      if ((low & 0x7fffU) >= kInfinity || (high & 0x7fffU) >= kInfinity) suspect_count = kNever;
      word[0][i] = low | high << 16;
    }
  }
#pragma unroll
  for (int part = 0; part < Operand::kParts; ++part)
    parts[part] = make_uint4(word[part][0], word[part][1], word[part][2], word[part][3]);
  return suspect_count;
}

/// Adds the weights of a vector to OperandHeader::small if all of them are too small: those of a column may be, as a scale of
/// its own would make them ordinary.
__device__ __forceinline__ void add_small_weights(OperandHeader* header, std::uint32_t suspect_count) {
  if (suspect_count == kPreconvertedRows) atomicAdd(&header->small, suspect_count);  // integers: the order does not matter
}

__device__ __forceinline__ void add_suspect_count(std::uint32_t* to, std::uint32_t suspect_count) {
  if ((suspect_count & ~kNever) != 0) atomicAdd(to, suspect_count & ~kNever);  // integers: the order does not matter
  if ((suspect_count & kNever) != 0) atomicOr(to, kNever);
}

inline constexpr int kZerosThreads = 256;

/// Writes `count` zeros after the launch before. The next launch may begin immediately.
static __global__ void __launch_bounds__(kZerosThreads) zeros_kernel(std::uint32_t* zeros, std::int64_t count) {
  wait_for_grid_before();
  let_dependents_start();
  for (std::int64_t i = threadIdx.x; i < count; i += kZerosThreads) zeros[i] = 0;
}

/// The same after all work of the stream so far.
inline void write_zeros(std::uint32_t* zeros, std::int64_t count, cudaStream_t stream) {
  constexpr std::int64_t kMostOfBlock = 1 << 14;  // more take a block longer than a memset, which waits 5 us in a graph
  if (count > kMostOfBlock) {
    CHECK_CUDA(cudaMemsetAsync(zeros, 0, static_cast<std::size_t>(count) * sizeof(std::uint32_t), stream));
    return;
  }
  launch_behind(zeros_kernel, 1, kZerosThreads, 0, stream, zeros, count);
  check_launch("conv tensor_core: zeros");
}

inline constexpr int kLargestThreads = 256, kLargestBatch = 8;

/// Blocks of largest_kernel for `count` numbers.
[[nodiscard]] inline std::int64_t largest_blocks(std::int64_t count) {
  const std::int64_t all = (count + kLargestThreads * kLargestBatch - 1) / (kLargestThreads * kLargestBatch);
  return all < 1024 ? all : 1024;
}

/// The largest finite magnitude, as float bits, of values[first + i*step + j*batch_step], 0 <= i < kLargestBatch, j >= 0. T is
/// float.
template <class T>
__device__ __forceinline__ std::uint32_t largest_of_thread(const T* __restrict__ values, std::int64_t count, std::int64_t first,
                                                           std::int64_t step, std::int64_t batch_step) {
  std::uint32_t most = 0;
  for (; first < count; first += batch_step) {
    float v[kLargestBatch];
#pragma unroll
    for (int i = 0; i < kLargestBatch; ++i) {
      const std::int64_t at = first + i * step;
      v[i] = at < count ? values[at] : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < kLargestBatch; ++i) {
      const std::uint32_t magnitude = __float_as_uint(v[i]) & 0x7fffffffU;
      if (magnitude < 0x7f800000U) most = max(most, magnitude);
    }
  }
  return most;
}

/// Raises *largest to the largest finite magnitude of `count` values, as float bits. T is float.
template <class T>
__global__ void __launch_bounds__(kLargestThreads)
    largest_kernel(const T* __restrict__ values, std::int64_t count, std::uint32_t* __restrict__ largest) {
  __shared__ std::uint32_t of_warp[kLargestThreads / 32];
  std::uint32_t most =
      largest_of_thread(values, count, blockIdx.x * static_cast<std::int64_t>(kLargestThreads * kLargestBatch) + threadIdx.x,
                        kLargestThreads, static_cast<std::int64_t>(gridDim.x) * (kLargestThreads * kLargestBatch));
  most = __reduce_max_sync(0xffffffffU, most);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffU, of_warp[threadIdx.x % (kLargestThreads / 32)]);
  if (threadIdx.x == 0) atomicMax(largest, most);  // integers: the order does not matter
}

/// What is known of packed weights: the first words of a WeightHeader and of an OperandHeader.
inline constexpr int kWeightWords = 3;
static_assert(sizeof(WeightHeader) == kWeightWords * sizeof(std::uint32_t) &&
              offsetof(OperandHeader, small) == 2 * sizeof(std::uint32_t));

inline constexpr int kClusterLargestThreads = 1024;

/// words = the largest finite magnitude of `count` values, as float bits, and zeros. One cluster of blocks. T is float.
template <class T>
__global__ void __launch_bounds__(kClusterLargestThreads)
    cluster_largest_kernel(const T* __restrict__ values, std::int64_t count, std::uint32_t* __restrict__ words) {
  __shared__ std::uint32_t of_warp[kClusterLargestThreads / 32], of_block;
  const auto blocks = static_cast<int>(gridDim.x);
  const std::int64_t step = static_cast<std::int64_t>(blocks) * kClusterLargestThreads;
  std::uint32_t most = largest_of_thread(
      values, count, blockIdx.x * static_cast<std::int64_t>(kClusterLargestThreads) + threadIdx.x, step, step * kLargestBatch);
  most = __reduce_max_sync(0xffffffffU, most);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(0xffffffffU, of_warp[threadIdx.x % 32]);
  if (threadIdx.x == 0) of_block = most;
  synchronize_cluster();
  if (blockIdx.x == 0 && threadIdx.x < 32) {
    const int rank = static_cast<int>(threadIdx.x);
    most = __reduce_max_sync(0xffffffffU, rank < blocks ? *in_block(&of_block, rank) : 0U);
    if (rank < kWeightWords) words[rank] = rank == 0 ? most : 0U;
  }
  synchronize_cluster();  // no block ends before it is read
}

/// Writes the words before the weights are packed: for scaled operands the largest finite magnitude of the problem's weights,
/// as float bits, and zeros.
template <class Operand>
void begin_weight_words(const ConvProblem& problem, const typename Operand::Source* weights, std::uint32_t* words,
                        cudaStream_t stream) {
  if constexpr (!Operand::kScaled) {
    write_zeros(words, kWeightWords, stream);
  } else {
    constexpr std::int64_t kMostOfCluster = 1 << 20;  // more take a cluster longer than two launches
    const std::int64_t count = problem.C_in * problem.channels_out_per_group() * problem.K;
    int device = 0;
    CHECK_CUDA(cudaGetDevice(&device));
    if (count <= kMostOfCluster && most_cluster(device) == kMostCluster) {
      launch_clusters(cluster_largest_kernel<float>, kMostCluster, kClusterLargestThreads, 0, stream, kMostCluster, weights,
                      count, words);
    } else {
      write_zeros(words, kWeightWords, stream);
      largest_kernel<<<static_cast<unsigned>(largest_blocks(count)), kLargestThreads, 0, stream>>>(weights, count, words);
    }
    check_launch("conv tensor_core: largest weight");
  }
}

/// run.operator()<Operand>(), of what a problem's numbers become.
template <class Run>
void with_operand(const ConvProblem& problem, Precision precision, const Run& run) {
  if (problem.dtype == DType::f16) return run.template operator()<F16>();
  if (problem.dtype == DType::bf16) return run.template operator()<Bf16>();
  if (precision == Precision::tf32) return run.template operator()<ScaledF16>();
  run.template operator()<SplitF16>();
}

inline constexpr int kSourceThreads = 256;
inline constexpr int kSourceItems = 2;  // (place, plane) items per thread

/// Blocks of source_kernel.
[[nodiscard]] inline std::int64_t source_blocks(const TapGemm& gemm, const SourceLayout& to) {
  return gemm.G * to.row_steps * kPreconvertedBlocks *
         ((to.items() + kSourceThreads * kSourceItems - 1) / (kSourceThreads * kSourceItems));
}

/// Where an item of source_kernel reads and writes.
struct SourceItem {
  std::int64_t from, to;  // from: in elements; to: in vectors of 16 bytes
  std::int64_t flag;
  bool exists;
  __device__ __forceinline__ SourceItem(const TapGemm& gemm, const SourceLayout& layout, std::uint32_t g,
                                        std::uint32_t row_block, std::uint32_t item) {
    // Neighbouring threads take neighbouring elements of a row; with a stride these are in different planes.
    const std::uint32_t place = layout.by_planes.divide(item), plane = item - place * layout.by_planes.divisor;
    const std::uint32_t tile = layout.by_places.divide(place), in_tile = place - tile * layout.by_places.divisor;
    const std::uint32_t position = tile * static_cast<std::uint32_t>(layout.tile_positions) + in_tile;
    const std::uint32_t n = layout.by_sample.divide(position);
    const std::uint32_t tap = layout.taps_apart ? layout.by_own_planes.divide(plane) : 0,
                        own_plane = plane - tap * layout.by_own_planes.divisor;
    const std::int64_t u = layout.position_begin + (position - n * layout.by_sample.divisor) + tap * gemm.tap_step;
    const std::int64_t e = gemm.source_stride * u + own_plane * gemm.source_plane_step + gemm.source_origin;
    exists = n < gemm.N && e >= 0 && e < gemm.source_length;
    const std::int64_t row0 = static_cast<std::int64_t>(row_block) * kPreconvertedRows;
    from = ((static_cast<std::int64_t>(n) * gemm.G + g) * gemm.rows + row0) * gemm.source_length + e;
    const std::int64_t step = (g * layout.tiles + tile) * layout.row_steps + row_block / kPreconvertedBlocks;
    to = ((step * layout.planes + plane) * layout.parts * kPreconvertedBlocks + row_block % kPreconvertedBlocks) *
             layout.tile_places +
         in_tile;
    // The flag of the position that the element would have without its tap: readers look there.
    flag = g * layout.flags + (position + tap * static_cast<std::uint32_t>(gemm.tap_step)) / kFlagPositions;
  }
};

/// values[i][c] = Snake of them with the parameters of channel `first` + c, c < rows, of the items that exist. All threads of a
/// block.
template <class T>
__device__ __forceinline__ void activate_snake(T (&values)[kSourceItems][kPreconvertedRows], const bool (&exists)[kSourceItems],
                                               std::int64_t first, int rows, const T* __restrict__ alpha,
                                               const T* __restrict__ beta) {
  using Function = SnakeFunction<float, sizeof(T) == 2>;
  __shared__ __align__(alignof(Function)) unsigned char memory[kPreconvertedRows * sizeof(Function)];
  auto* const functions = reinterpret_cast<Function*>(memory);
  if (static_cast<int>(threadIdx.x) < rows)  // there may be none: rows are filled up to whole steps
    functions[threadIdx.x] =
        Function(cuda::convert<float>(alpha[first + threadIdx.x]), cuda::convert<float>(beta[first + threadIdx.x]));
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kPreconvertedRows; ++c) {
    if (c >= rows) break;
    const Function function = functions[c];
    float numbers[kSourceItems];
#pragma unroll
    for (int i = 0; i < kSourceItems; ++i) numbers[i] = cuda::convert<float>(values[i][c]);
    function.apply(numbers);
#pragma unroll
    for (int i = 0; i < kSourceItems; ++i)
      if (exists[i]) values[i][c] = cuda::convert<T>(numbers[i]);
  }
}

/// operand = the source as it is read (TapGemm::source_slope; with kSnake Snake), scaled according to the header's
/// sample; flags[group][position / kFlagPositions] += the suspect counts there (null: they do not matter).
template <class Operand, bool kSnake>
__global__ void __launch_bounds__(kSourceThreads)
    source_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ SourceLayout to,
                  const typename Operand::Source* __restrict__ source, const typename Operand::Source* __restrict__ alpha,
                  const typename Operand::Source* __restrict__ beta, const OperandHeader* __restrict__ header,
                  std::uint32_t* __restrict__ flags, unsigned char* __restrict__ operand) {
  using T = typename Operand::Source;
  let_dependents_start();
  const std::uint32_t items = static_cast<std::uint32_t>(to.tiles) * to.by_planes.divisor * to.by_places.divisor;
  constexpr std::uint32_t kItems = kSourceThreads * kSourceItems;
  const std::uint32_t pieces = (items + kItems - 1) / kItems, above = blockIdx.x / pieces;
  const std::uint32_t first = (blockIdx.x - above * pieces) * kItems + threadIdx.x;
  const std::uint32_t g = to.by_row_blocks.divide(above), row_block = above - g * to.by_row_blocks.divisor;
  const int rows = static_cast<int>(
      min(gemm.rows - static_cast<std::int64_t>(row_block) * kPreconvertedRows, std::int64_t{kPreconvertedRows}));
  wait_for_grid_before();  // ptxas moves it before the __restrict__ reads wherever it stands
  const SampleLook<Operand::kScaled> look(header);
  if (look.is_mixed()) return;  // nobody reads the operand
  T values[kSourceItems][kPreconvertedRows];
  bool exists[kSourceItems];
#pragma unroll
  for (int i = 0; i < kSourceItems; ++i) {
    const SourceItem item(gemm, to, g, row_block, first + i * kSourceThreads);
    exists[i] = item.exists && first + i * kSourceThreads < items;
#pragma unroll
    for (int c = 0; c < kPreconvertedRows; ++c)
      values[i][c] = exists[i] && c < rows ? source[item.from + c * gemm.source_length] : T(0.0F);
  }
  if constexpr (kSnake) {
    activate_snake(values, exists, g * gemm.rows + row_block * kPreconvertedRows, rows, alpha, beta);
  } else if (gemm.source_slope != 1.0F) {
#pragma unroll
    for (int i = 0; i < kSourceItems; ++i)
#pragma unroll
      for (int c = 0; c < kPreconvertedRows; ++c) values[i][c] = gemm.activated(values[i][c]);
  }
  const int exponent = look.exponent();
  const float scale = power_of_two(exponent);
  const SplitRange range(exponent);
#pragma unroll
  for (int i = 0; i < kSourceItems; ++i) {
    if (first + i * kSourceThreads >= items) return;
    const SourceItem item(gemm, to, g, row_block, first + i * kSourceThreads);
    uint4 parts[Operand::kParts];
    const std::uint32_t suspect_count = make_operand<Operand>(values[i], scale, range, parts);
#pragma unroll
    for (int part = 0; part < Operand::kParts; ++part)
      reinterpret_cast<uint4*>(operand)[item.to + part * kPreconvertedBlocks * to.tile_places] = parts[part];
    if (flags != nullptr && suspect_count != 0) add_suspect_count(flags + item.flag, suspect_count);
  }
}

}  // namespace polyphase::cuda::tensor_core
