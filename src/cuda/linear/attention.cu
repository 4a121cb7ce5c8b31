// softmax(scale q k^T) v for few queries, where launches would take longer than the work. A block, or of many queries a pair of
// warps, computes one query of one head. Warps take turns at groups of 32 keys: 8 lanes compute the scores of 8 keys, then all
// lanes add the group's values, each its own columns. The softmax is online (Milakov and Gimelshein, arXiv 1805.02867): every
// warp keeps the maximum of its scores and the sums relative to it, and the block adds the warps' sums in order. No atomics, so
// equal calls give equal bits.
//
// f16 and bf16 are converted where they are read, computed in f32, and rounded once.
//
// Bytes: a query reads all of its keys and values, which lie in the L2 cache after the first query of the head.

#include "cuda/linear/attention.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/warp_sum.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kHeadMost = 128;                              // numbers of a query, and of a value
constexpr std::int64_t kTermsMost = std::int64_t{1} << 27;  // products of all queries
constexpr int kWarps = 8;
constexpr int kColumns = kHeadMost / 32;  // of the values, per lane
constexpr int kTogether = 8;              // keys whose values a lane loads before it adds them: enough loads outstanding
constexpr int kKeys = 8;                  // that as many lanes multiply together
constexpr int kShare = 2;                 // warps of a query, where queries are many

template <class T>
struct Operand {
  const T* from;
  std::int64_t samples, heads, positions;  // strides, in elements; the last dimension has stride 1
  __device__ __forceinline__ const T* row(std::int64_t n, std::int64_t h, std::int64_t l) const {
    return from + n * samples + h * heads + l * positions;
  }
};

template <class T>
struct AttentionLaunch {
  Operand<T> q, k, v;
  T* out;
  std::int64_t out_samples, out_heads, out_positions;  // strides
  std::int64_t queries, H, Lq, Lk, window;
  int D, E;
  MathOf<T> scale;
  bool causal, by_vectors;  // k's rows are whole 16-byte vectors
  bool values_by_vectors;   // v's rows are 4, 8, 16 or 32 whole packs of kColumns
};

template <class T>
__device__ __forceinline__ T warp_max(T value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(~0U, value, step);
    value = other > value || isnan(other) ? other : value;
  }
  return value;
}

/// products[0] = the sum over 8 lanes of products[lane % 8]: lanes kOffset apart exchange halves.
template <int kOffset, class A>
__device__ __forceinline__ void add_eighths(A (&products)[kKeys], int lane) {
  const bool upper = (lane & kOffset) != 0;
#pragma unroll
  for (int j = 0; j < kOffset; ++j) {
    const A kept = upper ? products[j + kOffset] : products[j], given = upper ? products[j] : products[j + kOffset];
    products[j] = kept + __shfl_xor_sync(~0U, given, kOffset);
  }
  if constexpr (kOffset > 1) add_eighths<kOffset / 2>(products, lane);
}

/// Lane l: the query times key group + l, for keys before `end`. 8 lanes multiply 8 keys, each its own vectors of every row, so
/// that a warp reads whole lines.
template <class T>
__device__ __forceinline__ MathOf<T> product(const AttentionLaunch<T>& launch, const MathOf<T>* query, std::int64_t n,
                                             std::int64_t h, std::int64_t group, std::int64_t end, int lane) {
  using A = MathOf<T>;
  A products[kKeys] = {};
  const std::int64_t first = group + lane / kKeys * kKeys;
  const T* const rows = launch.k.row(n, h, first);
  const int keys = static_cast<int>(end - first < kKeys ? end - first : kKeys), part = lane % kKeys;
  if (launch.by_vectors) {
    constexpr int kPack = 16 / static_cast<int>(sizeof(A));  // of 16 bits: fewer registers than whole vectors
    using Elements = Pack<T, kPack>;
#pragma unroll 1
    for (int d = part * kPack; d < launch.D; d += kKeys * kPack) {
      Elements packs[kKeys];
#pragma unroll
      for (int j = 0; j < kKeys; ++j)
        if (j < keys) packs[j] = *reinterpret_cast<const Elements*>(rows + j * launch.k.positions + d);
#pragma unroll
      for (int j = 0; j < kKeys; ++j)
        if (j < keys)
#pragma unroll
          for (int i = 0; i < kPack; ++i) products[j] += query[d + i] * convert<A>(packs[j].at[i]);
    }
  } else {
    for (int d = part; d < launch.D; d += kKeys)
#pragma unroll
      for (int j = 0; j < kKeys; ++j)
        if (j < keys) products[j] += query[d] * convert<A>(rows[j * launch.k.positions + d]);
  }
  add_eighths<kKeys / 2>(products, lane);
  return products[0];
}

/// How a warp reads values: `rows` of them together. A lane has columns first, first + step, ... of row `row`.
struct Columns {
  int rows, row, first, step;
};
template <class T>
__device__ __forceinline__ Columns columns_of(const AttentionLaunch<T>& launch, int lane) {
  if (!launch.values_by_vectors) return {1, 0, lane, 32};
  const int lanes = launch.E / kColumns;
  return {32 / lanes, lane / lanes, lane % lanes * kColumns, 1};
}

/// A warp's part of the softmax: sums relative to its greatest score. sums[c]: a lane's column c, of its own row of values.
template <class A>
struct Part {
  A greatest, total, sums[kColumns];
};

template <class T>
__device__ __forceinline__ void load_values(const AttentionLaunch<T>& launch, const T* row, const Columns& columns,
                                            Pack<T, kColumns>& values) {
  if (launch.values_by_vectors) {
    values = *reinterpret_cast<const Pack<T, kColumns>*>(row + columns.first);
  } else {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
      if (columns.first + columns.step * c < launch.E) values.at[c] = row[columns.first + columns.step * c];
  }
}

/// The keys first + 32*(own warp), first + 32*(own warp + kWarps), ... up to `end`.
template <class T>
__device__ __forceinline__ Part<MathOf<T>> part_of(const AttentionLaunch<T>& launch, const MathOf<T>* query,
                                                   const Columns& columns, std::int64_t n, std::int64_t h, std::int64_t first,
                                                   std::int64_t end, int warp, int lane) {
  using A = MathOf<T>;
  const A lowest = -static_cast<A>(INFINITY);
  Part<A> part{lowest, A(0), {}};
  for (std::int64_t group = first + warp * 32; group < end; group += kWarps * 32) {
    const bool is_key = group + lane < end;
    const A dot = product(launch, query, n, h, group, end, lane), score = is_key ? dot : lowest;
    const A group_greatest = warp_max(score), before = part.greatest;
    part.greatest = group_greatest > before || isnan(group_greatest) ? group_greatest : before;
    const A shrink = before == lowest ? A(0) : exp(before - part.greatest);
    const A weight = is_key ? exp(score - part.greatest) : A(0);
    part.total = part.total * shrink + warp_sum(weight);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) part.sums[c] *= shrink;
    const int keys = static_cast<int>(end - group < 32 ? end - group : 32);
    const T* const rows = launch.v.row(n, h, group);
#pragma unroll 1
    for (int first_key = columns.row; first_key - columns.row < keys; first_key += kTogether * columns.rows) {
      Pack<T, kColumns> values[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int key = first_key + j * columns.rows;
        if (key < keys) load_values(launch, rows + key * launch.v.positions, columns, values[j]);
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        const int key = first_key + j * columns.rows;
        const A own = __shfl_sync(~0U, weight, key);
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (key < keys && columns.first + columns.step * c < launch.E) part.sums[c] += own * convert<A>(values[j].at[c]);
      }
    }
  }
  for (int lanes = 32 / columns.rows; lanes < 32; lanes *= 2)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) part.sums[c] += __shfl_xor_sync(~0U, part.sums[c], lanes);
  return part;
}

/// The keys that a query sees, and where it is.
struct Query {
  std::int64_t n, h, i, begin, end;
};
template <class T>
__device__ __forceinline__ Query query_of(const AttentionLaunch<T>& launch, std::int64_t index) {
  const std::int64_t i = index % launch.Lq, h = index / launch.Lq % launch.H, n = index / launch.Lq / launch.H;
  const std::int64_t position = i + launch.Lk - launch.Lq, end = launch.causal ? position + 1 : launch.Lk;
  const bool is_late = launch.causal && launch.window > 0 && position >= launch.window;
  return {n, h, i, is_late ? position - launch.window + 1 : 0, end};
}

/// The parts of one query, in shared memory.
template <class A>
struct Parts {
  alignas(16) A query[kHeadMost];
  A greatest[kWarps], total[kWarps], sums[kWarps][kHeadMost];
};

template <class A>
__device__ __forceinline__ void keep(Parts<A>& parts, int w, const Part<A>& part, const Columns& columns, int E, int lane) {
  if (lane == 0) parts.greatest[w] = part.greatest, parts.total[w] = part.total;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = columns.first + columns.step * c;
    if (columns.row == 0 && column < E) parts.sums[w][column] = part.sums[c];
  }
}

/// Writes a column of the result: the parts that have keys, in order.
template <class T, class A>
__device__ __forceinline__ void write_sum(const AttentionLaunch<T>& launch, const Query& at, const Parts<A>& parts,
                                          int column) {
  A most = parts.greatest[0], all = 0, sum = 0;
  const std::int64_t keys = at.end - at.begin;
  const int count = keys >= kWarps * 32 ? kWarps : static_cast<int>((keys + 31) / 32);
  for (int w = 1; w < count; ++w) most = parts.greatest[w] > most || isnan(parts.greatest[w]) ? parts.greatest[w] : most;
  for (int w = 0; w < count; ++w) {
    const A factor = exp(parts.greatest[w] - most);
    all += parts.total[w] * factor, sum += parts.sums[w][column] * factor;
  }
  launch.out[at.n * launch.out_samples + at.h * launch.out_heads + at.i * launch.out_positions + column] =
      convert<T>(sum / all);
}

/// A block computes a query: for few of them.
template <class T>
__global__ void __launch_bounds__(kWarps * 32, sizeof(MathOf<T>) == 8 ? 1 : 2)
    attention_kernel(const __grid_constant__ AttentionLaunch<T> launch) {
  __shared__ Parts<MathOf<T>> parts;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const Columns columns = columns_of(launch, lane);
  for (std::int64_t index = blockIdx.x; index < launch.queries; index += gridDim.x) {
    const Query at = query_of(launch, index);
    __syncthreads();  // the query before has been written
    if (thread < launch.D) parts.query[thread] = launch.scale * convert<MathOf<T>>(launch.q.row(at.n, at.h, at.i)[thread]);
    __syncthreads();
    keep(parts, warp, part_of(launch, parts.query, columns, at.n, at.h, at.begin, at.end, warp, lane), columns, launch.E, lane);
    __syncthreads();
    if (thread < launch.E) write_sum(launch, at, parts, thread);
  }
}

/// kShare warps compute a query, the parts of the kernel above in turns, with the same bits: for many queries fewer warps are
/// without keys.
template <class T>
__global__ void __launch_bounds__(kWarps * 32, 2) attention_many_kernel(const __grid_constant__ AttentionLaunch<T> launch) {
  using A = MathOf<T>;
  constexpr int kQueries = kWarps / kShare;
  __shared__ Parts<A> of_queries[kQueries];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int own = warp / kShare, share = warp % kShare, thread = share * 32 + lane;
  const Columns columns = columns_of(launch, lane);
  Parts<A>& parts = of_queries[own];
  for (std::int64_t first = blockIdx.x * kQueries; first < launch.queries; first += gridDim.x * kQueries) {
    const bool exists = first + own < launch.queries;
    const Query at = query_of(launch, exists ? first + own : first);
    __syncthreads();  // the queries before have been written
    for (int d = thread; d < launch.D; d += 32 * kShare)
      parts.query[d] = launch.scale * convert<A>(launch.q.row(at.n, at.h, at.i)[d]);
    __syncthreads();
    for (int w = share; w < kWarps && at.begin + w * 32 < at.end; w += kShare)
      keep(parts, w, part_of(launch, parts.query, columns, at.n, at.h, at.begin, at.end, w, lane), columns, launch.E, lane);
    __syncthreads();
    if (exists)
      for (int column = thread; column < launch.E; column += 32 * kShare) write_sum(launch, at, parts, column);
  }
}

template <class T>
void launch_attention(const Tensor& out, const AttentionInputs& in, cudaStream_t stream) {
  const auto operand = [](const Tensor& x) {
    return Operand<T>{static_cast<const T*>(x.raw()), x.stride(0), x.stride(1), x.stride(2)};
  };
  const std::int64_t D = in.q.size(3);
  AttentionLaunch<T> launch{};
  launch.q = operand(in.q), launch.k = operand(in.k), launch.v = operand(in.v), launch.out = static_cast<T*>(out.raw());
  launch.out_samples = out.stride(0), launch.out_heads = out.stride(1), launch.out_positions = out.stride(2);
  launch.H = in.q.size(1), launch.Lq = in.q.size(2), launch.Lk = in.k.size(2), launch.window = in.window;
  launch.queries = in.q.size(0) * launch.H * launch.Lq;
  launch.D = static_cast<int>(D), launch.E = static_cast<int>(in.v.size(3));
  launch.scale = static_cast<MathOf<T>>(in.scale), launch.causal = in.causal;
  constexpr std::int64_t kPack = 16 / sizeof(T);
  launch.by_vectors =
      (D | launch.k.samples | launch.k.heads | launch.k.positions) % kPack == 0 && is_aligned(launch.k.from, 16);
  const std::int64_t E = in.v.size(3), packs = E / kColumns;
  launch.values_by_vectors = sizeof(MathOf<T>) == 4 && E % kColumns == 0 && packs >= 4 && (packs & (packs - 1)) == 0 &&
                             (launch.v.samples | launch.v.heads | launch.v.positions) % kColumns == 0 &&
                             is_aligned(launch.v.from, kColumns * sizeof(T));
  const auto grid_of = [](std::int64_t blocks) { return static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 20)); };
  // From two waves of the blocks of the first kernel on.
  if constexpr (sizeof(MathOf<T>) == 4) {
    if (launch.queries >= std::int64_t{4} * properties(out.device().index).sm_count)
      return attention_many_kernel<T>
          <<<grid_of((launch.queries * kShare + kWarps - 1) / kWarps), kWarps * 32, 0, stream>>>(launch);
  }
  attention_kernel<T><<<grid_of(launch.queries), kWarps * 32, 0, stream>>>(launch);
}

}  // namespace

bool attention_can(const AttentionInputs& in) {
  return in.q.size(3) <= kHeadMost && in.v.size(3) <= kHeadMost && in.q.stride(3) == 1 && in.k.stride(3) == 1 &&
         in.v.stride(3) == 1;
}

bool attention_is_fast(const AttentionInputs& in) {
  const std::int64_t D = in.q.size(3), E = in.v.size(3);
  const std::int64_t keys = in.causal && in.window > 0 ? std::min(in.window, in.k.size(2)) : in.k.size(2);
  return static_cast<double>(in.q.size(0) * in.q.size(1) * in.q.size(2)) * static_cast<double>(keys * (D + E)) <=
         static_cast<double>(kTermsMost);
}

void attention(const Tensor& out, const AttentionInputs& in, cudaStream_t stream) {
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) launch_attention<T>(out, in, stream);
  });
  check_launch("attention");
}

}  // namespace polyphase::cuda
