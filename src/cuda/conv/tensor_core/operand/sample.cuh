#pragma once
// The sample of a source of f32: what tells its scale, and whether one scale suits it.
//
// sample_kernel reads windows of the source and leaves a SampleWord for each of its blocks in the header of the operand. The
// kernels after it read these words (SampleLook).

#include <algorithm>
#include <cstdint>
#include <span>

#include "cuda/conv/source_activation.hpp"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/operand/source_layout.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/elementwise/snake_function.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/ptx/relaxed.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kSampleBlocksOfSource = 32;

/// What precedes an operand in memory.
struct OperandHeader {
  std::uint32_t largest;        ///< of the weights: largest magnitude, as float bits
  std::uint32_t suspect_count;  ///< of the weights: as make_operand counts it
  std::uint32_t small;          ///< of the weights: those in vectors of eight rows that are all too small to split
  std::uint32_t unused[29];
  std::uint32_t sample[kSampleBlocksOfSource];  ///< of the source: SampleWord of parts of a sample
};
static_assert(sizeof(OperandHeader) == kOperandHeaderBytes);

/// What a part of a sample tells of a source, in a word: the exponents of its largest magnitude and of its quietest window's
/// largest, as the bits of a normal float have them; whether one scale makes a quarter of its numbers too small to split, and a
/// quarter of the weights; and whether a kernel follows that computes a source of mixed magnitudes (is_mixed()).
struct SampleWord {
  /// The calling lane's part. The compiler moves an ordinary load of a `const __restrict__` header before the wait for the
  /// launch that writes it.
  __device__ __forceinline__ static std::uint32_t of_lane(const std::uint32_t* sample) {
    return ptx::load_relaxed(sample + threadIdx.x % 32);
  }
  static constexpr std::uint32_t kExponent = 0xff800000U, kMayBeMixed = 1U << 22, kHasSmall = 1U << 21,
                                 kHasSmallWeights = 1U << 20;
  static constexpr int kQuietest = 23 - 12;  // its exponent has bits 12 to 19
  __device__ __forceinline__ static std::uint32_t packed(std::uint32_t largest, std::uint32_t quietest, bool has_small,
                                                         bool has_small_weights, bool may_be_mixed) {
    const auto exponent = [](std::uint32_t magnitude) { return (magnitude == 0 ? 0 : max(magnitude, 1U << 23)) & kExponent; };
    return exponent(largest) | (may_be_mixed ? kMayBeMixed : 0) | (has_small_weights ? kHasSmallWeights : 0) |
           (has_small ? kHasSmall : 0) | exponent(quietest) >> kQuietest;
  }
  /// The exponent of the quietest window, 0 if all of it is zeros.
  __device__ __forceinline__ static std::uint32_t quietest(std::uint32_t word) { return (word << kQuietest) & (0xffU << 23); }
};

/// Whether magnitudes of a source differ too much between positions. Then the kernel ends immediately and leaves all sums to
/// the by_tile kernel, which is launched after it. Where only few positions or only rows differ, few sums are suspect. `quiet`,
/// `small`: parts of the sample that have a quiet window, or many numbers too small to split. Weights of columns that differ
/// too much have the same effect.
__device__ __forceinline__ bool is_mixed(std::uint32_t most, int quiet, int small) {
  constexpr int kQuietMost = 12, kSmallMost = 16;  // of 32 parts
  constexpr std::uint32_t kTiny = 8U << 23;        // 2^-119: scale_exponent() cannot reach the target
  return quiet > kQuietMost || small > kSmallMost || (most != 0 && most < kTiny);
}
/// Whether a part has a window that is quiet compared with the whole sample.
__device__ __forceinline__ bool has_quiet_window(std::uint32_t word, std::uint32_t most) {
  constexpr std::uint32_t kQuiet = 12U << 23;  // 2^12
  const std::uint32_t own = SampleWord::quietest(word);
  return own != 0 && own + kQuiet < most;
}
/// What the sample tells of a source, by whole warps. It is loaded once, as each load waits for L2. Operands without a scale
/// have no sample.
template <bool kScaled>
class SampleLook {
 public:
  __device__ __forceinline__ explicit SampleLook(const OperandHeader* header)
      : own_(kScaled ? SampleWord::of_lane(header->sample) : 0) {}
  [[nodiscard]] __device__ __forceinline__ bool is_mixed() const {
    if constexpr (!kScaled) return false;
    const std::uint32_t most = largest();
    const int quiet = __popc(__ballot_sync(0xffffffffU, has_quiet_window(own_, most)));
    const int small = __popc(__ballot_sync(0xffffffffU, (own_ & SampleWord::kHasSmall) != 0));
    return (own_ & SampleWord::kMayBeMixed) != 0 &&
           ((own_ & SampleWord::kHasSmallWeights) != 0 || tensor_core::is_mixed(most, quiet, small));
  }
  /// The exponent of the source's scale, which makes the largest of the sample 2^target.
  [[nodiscard]] __device__ __forceinline__ int exponent(int target = kSourceTarget) const {
    return kScaled ? scale_exponent(largest(), target) : 0;
  }

 private:
  static_assert(kSampleBlocksOfSource == 32);
  [[nodiscard]] __device__ __forceinline__ std::uint32_t largest() const {
    return __reduce_max_sync(0xffffffffU, own_ & SampleWord::kExponent);
  }
  std::uint32_t own_;
};

/// is_mixed() by whole warps.
__device__ __forceinline__ bool is_mixed(const OperandHeader* header) { return SampleLook<true>(header).is_mixed(); }
/// is_mixed() by a thread.
__device__ __forceinline__ bool is_mixed_of_thread(const OperandHeader* header) {
  std::uint32_t words[kSampleBlocksOfSource];
#pragma unroll
  for (int i = 0; i < kSampleBlocksOfSource; ++i) words[i] = ptx::load_relaxed(header->sample + i);
  std::uint32_t most = 0;
#pragma unroll
  for (const std::uint32_t word : words) most = max(most, word & SampleWord::kExponent);
  int quiet = 0, small = 0;
#pragma unroll
  for (const std::uint32_t word : words) {
    quiet += has_quiet_window(word, most) ? 1 : 0;
    small += (word & SampleWord::kHasSmall) != 0 ? 1 : 0;
  }
  return (words[0] & SampleWord::kMayBeMixed) != 0 &&
         ((words[0] & SampleWord::kHasSmallWeights) != 0 || is_mixed(most, quiet, small));
}

/// SampleLook::exponent(). Called by whole warps.
__device__ __forceinline__ int source_exponent(const OperandHeader* header, int target = kSourceTarget) {
  return SampleLook<true>(header).exponent(target);
}

/// log2 of the factor for a sum. Called by whole warps.
template <bool kScaled>
__device__ __forceinline__ int sum_exponent(const SampleLook<kScaled>& source, const OperandHeader* weights) {
  return kScaled ? -source.exponent() - scale_exponent(weights->largest, kWeightTarget) : 0;
}
template <class Operand>
__device__ __forceinline__ int sum_exponent(const OperandHeader* source, const OperandHeader* weights) {
  return sum_exponent(SampleLook<Operand::kScaled>(source), weights);
}

inline constexpr int kSampleThreads = 256, kSampleBatch = 8;

/// Words that are zeros when the kernel that reads the header begins to mark sums in them, and whether the kernel that computes
/// those sums can compute all sums (is_mixed()).
struct Marks {
  std::span<std::uint32_t> words;
  bool may_be_mixed = false;
  const std::uint32_t* small_weights = nullptr;  ///< the `small` of the weights' header
  std::uint32_t many_weights = 0;                ///< as many make the weights mixed
};

/// A window of the sample: eight neighbouring positions of up to 32 rows, one row for each lane; where there are fewer rows,
/// more positions. Windows are spread over all samples and positions, and begin at other rows.
struct SampleWindow {
  const float* at = nullptr;
  int count = 0;             // of a lane's numbers
  std::int64_t channel = 0;  // of the source
  __device__ __forceinline__ SampleWindow(const TapGemm& gemm, const float* source, int window, int windows) {
    const auto lane = static_cast<int>(threadIdx.x % 32), rows = static_cast<int>(min(gemm.rows, std::int64_t{32}));
    const std::int64_t length = gemm.source_length, all = gemm.N * gemm.G * length;
    // Neither equally far apart nor at the same places of all rows.
    const std::int64_t apart = all / windows, first = apart * window + apart * (window * 97 % 251) / 251;
    const std::int64_t sample = first / length;
    const std::int64_t position = (first - sample * length) / kSampleBatch * kSampleBatch + lane / rows * kSampleBatch;
    const std::int64_t row = (lane % rows * gemm.rows / rows + window) % gemm.rows;
    at = source + (sample * gemm.rows + row) * length + position;
    channel = sample % gemm.G * gemm.rows + row;
    count = static_cast<int>(max(min(length - position, std::int64_t{kSampleBatch}), std::int64_t{0}));
  }
};

/// header->sample = SampleWord of windows of the source as it is read (TapGemm::source_slope; with kSnake Snake). Flags and
/// marks are set to zero. Launched with kSampleBlocksOfSource blocks; each warp has a window.
template <bool kSnake>
static __global__ void __launch_bounds__(kSampleThreads)
    sample_kernel(const __grid_constant__ TapGemm gemm, const float* __restrict__ source, const SourceSnake snake,
                  std::int64_t flag_count, std::uint32_t* __restrict__ flags, std::int64_t mark_count,
                  std::uint32_t* __restrict__ marks, bool may_be_mixed, const std::uint32_t* __restrict__ small_weights,
                  std::uint32_t many_weights, OperandHeader* __restrict__ header) {
  constexpr int kWarps = kSampleThreads / 32;
  __shared__ std::uint32_t of_warp[kWarps], small_of_warp[kWarps];
  wait_for_grid_before();  // which may have made the source
  let_dependents_start();
  const std::int64_t thread = blockIdx.x * kSampleThreads + threadIdx.x;
  for (std::int64_t i = thread; i < flag_count; i += kSampleBlocksOfSource * kSampleThreads) flags[i] = 0;
  for (std::int64_t i = thread; i < mark_count; i += kSampleBlocksOfSource * kSampleThreads) marks[i] = 0;
  const bool has_small_weights = may_be_mixed && threadIdx.x == 0 && *small_weights >= many_weights;
  const auto warp = static_cast<int>(threadIdx.x) / 32;
  const SampleWindow window(gemm, source, warp * kSampleBlocksOfSource + static_cast<int>(blockIdx.x),
                            kWarps * kSampleBlocksOfSource);
  std::uint32_t magnitudes[kSampleBatch], most = 0;
#pragma unroll
  for (int i = 0; i < kSampleBatch; ++i) magnitudes[i] = i < window.count ? __float_as_uint(window.at[i]) : 0;
  if constexpr (kSnake) {
    float values[kSampleBatch];
#pragma unroll
    for (int i = 0; i < kSampleBatch; ++i) values[i] = __uint_as_float(magnitudes[i]);
    SnakeFunction<float, false>(static_cast<const float*>(snake.alpha)[window.channel],
                                static_cast<const float*>(snake.beta)[window.channel])
        .apply(values);
#pragma unroll
    for (int i = 0; i < kSampleBatch; ++i) magnitudes[i] = i < window.count ? __float_as_uint(values[i]) : 0;
  }
#pragma unroll
  for (int i = 0; i < kSampleBatch; ++i) {
    magnitudes[i] = __float_as_uint(gemm.activated(__uint_as_float(magnitudes[i]))) & 0x7fffffffU;
    if (magnitudes[i] >= 0x7f800000U) magnitudes[i] = 0;
    most = max(most, magnitudes[i]);
  }
  most = __reduce_max_sync(0xffffffffU, most);
  if (threadIdx.x % 32 == 0) of_warp[warp] = most;
  __syncthreads();
  const std::uint32_t own = of_warp[threadIdx.x % kWarps];
  most = __reduce_max_sync(0xffffffffU, own);
  const std::uint32_t quietest = __reduce_min_sync(0xffffffffU, own == 0 ? most : own);
  constexpr auto kSpan = static_cast<std::uint32_t>(kSourceTarget + 14) << 23;
  const std::uint32_t least = most > kSpan ? most - kSpan : 0;
  int small = 0;
#pragma unroll
  for (int i = 0; i < kSampleBatch; ++i) small += magnitudes[i] != 0 && magnitudes[i] < least ? 1 : 0;
  small = __reduce_add_sync(0xffffffffU, small);
  if (threadIdx.x % 32 == 0) small_of_warp[warp] = static_cast<std::uint32_t>(small);
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::uint32_t all_small = 0;
  for (const std::uint32_t one : small_of_warp) all_small += one;
  constexpr std::uint32_t kMany = kSampleThreads * kSampleBatch / 4;
  header->sample[blockIdx.x] = SampleWord::packed(most, quietest, all_small > kMany, has_small_weights, may_be_mixed);
}

/// The header of a convolution's whole source and zeros to `flags` and `marks`, on `stream`, after the launch before it.
/// The next launch may read the source immediately, header and flags after wait_for_grid_before().
template <bool kSnake = false>
void sample_source(const TapGemm& gemm, const float* source, OperandHeader* header, cudaStream_t stream,
                   std::span<std::uint32_t> flags, const Marks& marks, const SourceSnake& snake = {}) {
  launch_behind(sample_kernel<kSnake>, kSampleBlocksOfSource, kSampleThreads, 0, stream, gemm, source, snake,
                static_cast<std::int64_t>(flags.size()), flags.data(), static_cast<std::int64_t>(marks.words.size()),
                marks.words.data(), marks.may_be_mixed, marks.small_weights, marks.many_weights, header);
  check_launch("conv tensor_core: scale");
}

}  // namespace polyphase::cuda::tensor_core
