// out (M, N) = residual + scale*gelu(norm(x) weight^T + bias) for few rows: what a frame of a codec's transformer multiplies. A
// warp, or several with a part of K each, computes one column for all rows, so every weight is read once. Lanes read
// neighbouring vectors of 16 bytes. The rows are in shared memory, where each block computes their layer norm again. Sums in
// f32: lanes, then warps, in a fixed order.
//
// Bytes: the weights once. The kernel starts while the one before it ends, and prefetches its weights to the L2 cache
// meanwhile.

#include "cuda/linear/few_rows.hpp"

#include <algorithm>

#include "cuda/elementwise/elementwise_functions.cuh"
#include "cuda/kernel/address.hpp"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/warp_sum.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kColumnWarps = 8;
constexpr int kRowsMost = 8;
constexpr int kHeld = 4;  // vectors of weights that a lane loads before it multiplies
constexpr std::int64_t kVectorBytes = 16, kLineBytes = 128;
constexpr std::int64_t kWarpBytes = kHeld * 32 * kVectorBytes;  // of a column: what a warp loads together
constexpr std::int64_t kBlocksLeast = 128;                      // about one for each SM, if every lane still has a vector
constexpr std::int64_t kSharedMost = 96 * 1024;
constexpr std::int64_t kWeightsMost = std::int64_t{1} << 24;

template <class T>
struct FewRowsLaunch {
  const T *x, *weight;
  const T *bias, *norm_weight, *norm_bias, *scale, *residual;  // may be null
  T* out;
  int rows, K, N, split;  // split: warps of a column
  double norm_epsilon;
  bool normalizes, has_gelu;
};

template <class T>
inline constexpr int kPack = static_cast<int>(kVectorBytes / sizeof(T));

/// Layer norm of a row in shared memory by one warp, in place: sums in f64, as in reduce/row_norm.cu, four next to each other
/// for their latency. `weights`: norm_weight and norm_bias, in shared memory too.
template <class T>
__device__ __forceinline__ void normalize_row(const FewRowsLaunch<T>& launch, Pack<T, kPack<T>>* row,
                                              const Pack<T, kPack<T>>* weights, int lane) {
  const int vectors = launch.K / kPack<T>;
  const auto for_vectors = [&](const auto& use) {
#pragma unroll 4
    for (int v = lane; v < vectors; v += 32) use(v);
  };
  const double share = 1 / static_cast<double>(launch.K);
  double sums[4] = {}, squares[4] = {};
  const auto total_of = [](const double(&parts)[4]) { return warp_sum((parts[0] + parts[1]) + (parts[2] + parts[3])); };
  for_vectors([&](int v) {
    const auto pack = row[v];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) sums[i % 4] += static_cast<double>(convert<float>(pack.at[i]));
  });
  const double mean = total_of(sums) * share;
  for_vectors([&](int v) {
    const auto pack = row[v];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const double centred = static_cast<double>(convert<float>(pack.at[i])) - mean;
      squares[i % 4] = fma(centred, centred, squares[i % 4]);
    }
  });
  const double variance = total_of(squares) * share;
  const auto scale = static_cast<float>(1 / sqrt(variance + launch.norm_epsilon)), near = static_cast<float>(mean);
  const auto rest = static_cast<float>(mean - static_cast<double>(near));  // mean = near + rest
  for_vectors([&](int v) {
    auto pack = row[v];
    const auto weight = weights[v], bias = weights[vectors + v];
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      float y = ((convert<float>(pack.at[i]) - near) - rest) * scale;
      if (launch.norm_weight != nullptr) y *= convert<float>(weight.at[i]);
      if (launch.norm_bias != nullptr) y += convert<float>(bias.at[i]);
      pack.at[i] = convert<T>(y);
    }
    row[v] = pack;
  });
}

/// What follows a sum: the operands of one output, loaded before the product.
struct Epilogue {
  float bias = 0, scale = 1, residual = 0;
};
template <class T>
__device__ __forceinline__ Epilogue load_epilogue(const FewRowsLaunch<T>& launch, int row, int column) {
  Epilogue epilogue;
  if (launch.bias != nullptr) epilogue.bias = convert<float>(launch.bias[column]);
  if (launch.scale != nullptr) epilogue.scale = convert<float>(launch.scale[column]);
  if (launch.residual != nullptr)
    epilogue.residual = convert<float>(launch.residual[static_cast<std::int64_t>(row) * launch.N + column]);
  return epilogue;
}
template <class T>
__device__ __forceinline__ T finished(const FewRowsLaunch<T>& launch, const Epilogue& epilogue, float sum) {
  if (launch.bias != nullptr) sum += epilogue.bias;
  if (launch.has_gelu) sum = evaluate_unary<MapOp::gelu, kIsHalf<T>>(sum, 0.0F, 0.0F);
  if (launch.scale != nullptr) sum *= epilogue.scale;
  if (launch.residual != nullptr) sum += epilogue.residual;
  return convert<T>(sum);
}

template <class T, int kRows>
__global__ void __launch_bounds__(kColumnWarps * 32, 2) few_rows_kernel(const __grid_constant__ FewRowsLaunch<T> launch) {
  using Vector = Pack<T, kPack<T>>;
  extern __shared__ uint4 few_rows_shared[];
  __shared__ float partial[kColumnWarps][kRows];
  auto* const x = reinterpret_cast<Vector*>(few_rows_shared);  // (rows, vectors)
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int split = launch.split, part = warp % split, vectors = launch.K / kPack<T>;
  const int column = static_cast<int>(blockIdx.x) * (kColumnWarps / split) + warp / split;
  const bool is_column = column < launch.N;
  const T* const weights = launch.weight + static_cast<std::int64_t>(is_column ? column : 0) * launch.K;
  if (is_column) {
    const auto bytes = static_cast<std::int64_t>(sizeof(T)) * launch.K;
    for (std::int64_t at = (part * 32 + lane) * kLineBytes; at < bytes; at += split * 32 * kLineBytes)
      ptx::prefetch_l2(reinterpret_cast<const char*>(weights) + at);
  }
  wait_for_grid_before();
  let_dependents_start();

  const auto* const column_vectors = reinterpret_cast<const Vector*>(weights);
  Vector held[kHeld];
  const auto load = [&](int first) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int v = first + h * 32 * split;
      if (is_column && v < vectors) held[h] = column_vectors[v];
    }
  };
  int first = part * 32 + lane;
  load(first);
  const bool stores = is_column && part == 0 && lane < launch.rows;  // row `lane`
  const Epilogue epilogue = stores ? load_epilogue(launch, lane, column) : Epilogue{};
  Vector* const norm_weights = x + launch.rows * vectors;
  const auto copy = [&](Vector* to, const T* from, int count) {
    if (from == nullptr) return;
    for (int v = thread; v < count; v += kColumnWarps * 32) to[v] = reinterpret_cast<const Vector*>(from)[v];
  };
  copy(x, launch.x, launch.rows * vectors);
  if (launch.normalizes) {
    copy(norm_weights, launch.norm_weight, vectors);
    copy(norm_weights + vectors, launch.norm_bias, vectors);
  }
  __syncthreads();
  if (launch.normalizes) {
    if (warp < launch.rows) normalize_row(launch, x + warp * vectors, norm_weights, lane);
    __syncthreads();
  }
  float sums[kRows] = {};
  while (is_column && first < vectors) {
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      const int v = first + h * 32 * split;
      if (v >= vectors) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r >= launch.rows) break;
        const Vector row = x[r * vectors + v];
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) sums[r] = fmaf(convert<float>(held[h].at[i]), convert<float>(row.at[i]), sums[r]);
      }
    }
    first += kHeld * 32 * split;
    load(first);
  }
  float own = 0;  // lane r has row r
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = warp_sum(sums[r]);
    if (lane == r) own = total;
  }
  if (split > 1) {
    if (lane < kRows) partial[warp][lane] = own;
    __syncthreads();
    if (part > 0) return;
    for (int w = 1; w < split; ++w) own += lane < kRows ? partial[warp + w][lane] : 0.0F;
  }
  if (stores) launch.out[static_cast<std::int64_t>(lane) * launch.N + column] = finished(launch, epilogue, own);
}

template <class T>
void launch_few_rows(const Tensor& out, const LinearInputs& in, cudaStream_t stream) {
  FewRowsLaunch<T> launch{};
  launch.x = address_or_null<const T>(in.x), launch.weight = address_or_null<const T>(in.weight),
  launch.bias = address_or_null<const T>(in.bias), launch.out = static_cast<T*>(out.raw());
  launch.norm_weight = address_or_null<const T>(in.norm_weight), launch.norm_bias = address_or_null<const T>(in.norm_bias);
  launch.scale = address_or_null<const T>(in.scale), launch.residual = address_or_null<const T>(in.residual);
  launch.rows = static_cast<int>(in.x.size(0)), launch.K = static_cast<int>(in.x.size(1));
  launch.N = static_cast<int>(in.weight.size(0));
  launch.norm_epsilon = in.norm_epsilon, launch.normalizes = in.normalizes, launch.has_gelu = in.has_gelu;
  const auto bytes = static_cast<std::int64_t>(sizeof(T)) * launch.K;
  launch.split = 1;
  const auto is_wider = [&](std::int64_t split) {
    const bool is_small = launch.N * split < kBlocksLeast * kColumnWarps && bytes >= 2 * split * 32 * kVectorBytes;
    return bytes > split * kWarpBytes || is_small;
  };
  while (launch.split < kColumnWarps && is_wider(launch.split)) launch.split *= 2;
  auto* kernel = few_rows_kernel<T, 8>;
  if (launch.rows <= 4) kernel = few_rows_kernel<T, 4>;
  if (launch.rows <= 2) kernel = few_rows_kernel<T, 2>;
  if (launch.rows <= 1) kernel = few_rows_kernel<T, 1>;
  const int columns = kColumnWarps / launch.split;
  const std::int64_t shared = (launch.rows + (launch.normalizes ? 2 : 0)) * bytes;
  allow_shared_memory(kernel, shared);
  launch_behind(kernel, static_cast<unsigned>((launch.N + columns - 1) / columns), kColumnWarps * 32,
                static_cast<std::size_t>(shared), stream, launch);
}

}  // namespace

bool few_rows_fit(const LinearInputs& in) {
  const DType dtype = in.x.dtype();
  if (dtype == DType::f64 || dtype == DType::i64) return false;
  const std::int64_t M = in.x.size(0), K = in.x.size(1), bytes = K * static_cast<std::int64_t>(size_of(dtype));
  bool are_aligned = true;
  for (const Tensor& tensor : {in.x, in.weight, in.norm_weight, in.norm_bias})
    are_aligned = are_aligned && (!tensor.defined() || is_aligned(tensor.raw(), kVectorBytes));
  return M <= kRowsMost && bytes % kVectorBytes == 0 && (M + (in.normalizes ? 2 : 0)) * bytes <= kSharedMost &&
         in.weight.numel() <= kWeightsMost && are_aligned;
}

void few_rows(const Tensor& out, const LinearInputs& in, cudaStream_t stream) {
  dispatch_element(in.x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float> || kIsHalf<T>) launch_few_rows<T>(out, in, stream);
  });
  check_launch("linear: few rows");
}

}  // namespace polyphase::cuda
