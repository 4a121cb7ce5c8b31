// Causal attention of the next few positions of a sequence in one launch: rotates queries and keys, attends to the past and to
// the new positions, and writes the new keys and values to the ring that holds the past. A block computes one query of one
// head.
//
// A lane has eight numbers of a head, kLanes lanes have a key: they add their products by shuffles, and each then has the key's
// score where it has the key's value. Warps take turns at the keys of the ring; the last warp also takes the new ones, which
// each block rotates itself. The softmax is online, as in attention.cu: warps keep sums relative to their greatest score, and
// the block adds them in order. Sums in f32; angles in f64.
//
// No block reads what another writes: new positions overwrite rows that no query of this launch sees, and the last block that
// has read the position counts it on.

#include "cuda/linear/rotary_attention.hpp"

#include <algorithm>
#include <cmath>

#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kRotaryHeadMost = 128;
constexpr int kNewMost = 8;
constexpr int kRotaryWarps = 8;
constexpr int kPer = 8;    // numbers of a head that a lane has
constexpr int kSteps = 8;  // keys that a lane loads together

template <class T>
struct RotaryLaunch {
  const T* projected;
  T *keys, *values;              // null without a past
  unsigned long long* position;  // the first new one; how many blocks have read it
  T* out;
  std::int64_t ring, window;  // rows of the ring
  int n, heads, key_heads, D;
  float scale;
  double step;  // of the frequencies' logarithms
  bool rotates, interleaved, sees_only_newest;
};

template <class T>
using Numbers = Pack<T, kPer>;

/// The softmax of a warp's keys so far. A lane has the sums of its eight columns and of its keys.
struct RotaryPart {
  float greatest = -INFINITY, total = 0, sums[kPer] = {};
};

/// Adds keys with their values. Key s of the lane counts if is_key(s).
template <int kLanes, class T, class IsKey>
__device__ __forceinline__ void add_keys(RotaryPart& part, const float (&query)[kPer], const Numbers<T> (&keys)[kSteps],
                                         const Numbers<T> (&values)[kSteps], const IsKey& is_key) {
  float scores[kSteps], greatest = part.greatest;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    float score = 0;
#pragma unroll
    for (int c = 0; c < kPer; ++c) score = fmaf(query[c], convert<float>(keys[s].at[c]), score);
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) score += __shfl_xor_sync(~0U, score, step);
    scores[s] = score;
    if (is_key(s)) greatest = score > greatest || isnan(score) ? score : greatest;
  }
#pragma unroll
  for (int step = 16; step >= kLanes; step /= 2) {
    const float other = __shfl_xor_sync(~0U, greatest, step);
    greatest = other > greatest || isnan(other) ? other : greatest;
  }
  const float shrink = part.greatest == -INFINITY ? 0.0F : expf(part.greatest - greatest);
  part.greatest = greatest;
  part.total *= shrink;
#pragma unroll
  for (int c = 0; c < kPer; ++c) part.sums[c] *= shrink;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if (!is_key(s)) continue;
    const float weight = expf(scores[s] - greatest);
    part.total += weight;
#pragma unroll
    for (int c = 0; c < kPer; ++c) part.sums[c] = fmaf(weight, convert<float>(values[s].at[c]), part.sums[c]);
  }
}

/// Pair i of a head's numbers `from` at `position`, rotated as in elementwise/rope.cu: calls to(column, number) twice.
template <class T, class To>
__device__ __forceinline__ void rotate_pair(const RotaryLaunch<T>& launch, const T* from, int i, double position,
                                            const To& to) {
  const int left = launch.interleaved ? 2 * i : i, right = launch.interleaved ? 2 * i + 1 : i + launch.D / 2;
  const float a = convert<float>(from[left]), b = convert<float>(from[right]);
  if (!launch.rotates) {
    to(left, convert<T>(a));
    to(right, convert<T>(b));
    return;
  }
  double sine = 0, cosine = 1;
  sincos(__dmul_rn(position, exp(__dmul_rn(static_cast<double>(i), launch.step))), &sine, &cosine);
  const auto s = static_cast<float>(sine), c = static_cast<float>(cosine);
  to(left, convert<T>(__fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s))));
  to(right, convert<T>(__fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s))));
}

/// Counts the position on once all blocks have read it.
template <class T>
__device__ __forceinline__ void count_on(const RotaryLaunch<T>& launch, std::int64_t first) {
  __threadfence();
  if (atomicAdd(launch.position + 1, 1ULL) + 1 < gridDim.x) return;
  launch.position[0] = static_cast<unsigned long long>(first + launch.n);
  launch.position[1] = 0;
}

/// What a block computes: query i of a head, and the row of its first key in the ring.
struct Place {
  int i, head;
  std::int64_t sample, first, begin;  // first: the new positions' first number; begin: the first key's
};

template <class T>
__device__ __forceinline__ Place place_of(const RotaryLaunch<T>& launch) {
  Place place{};
  place.i = static_cast<int>(blockIdx.x) % launch.n;
  place.head = static_cast<int>(blockIdx.x) / launch.n % launch.heads;
  place.sample = static_cast<int>(blockIdx.x) / launch.n / launch.heads;
  place.first =
      launch.keys == nullptr ? 0 : static_cast<std::int64_t>(*static_cast<volatile unsigned long long*>(launch.position));
  if (launch.window > 0) {
    const std::int64_t end = place.first + (launch.sees_only_newest ? launch.n : place.i + 1);
    place.begin = end > launch.window ? end - launch.window : 0;
  }
  return place;
}

/// The block's warps' parts, combined: out of the query.
struct RotaryParts {
  float greatest[kRotaryWarps], total[kRotaryWarps], sums[kRotaryWarps][kRotaryHeadMost];
};

template <int kLanes>
__device__ __forceinline__ void keep_part(RotaryParts& parts, RotaryPart& part, int warp, int lane) {
#pragma unroll
  for (int step = 16; step >= kLanes; step /= 2) {
    part.total += __shfl_xor_sync(~0U, part.total, step);
#pragma unroll
    for (int c = 0; c < kPer; ++c) part.sums[c] += __shfl_xor_sync(~0U, part.sums[c], step);
  }
  if (lane == 0) parts.greatest[warp] = part.greatest, parts.total[warp] = part.total;
  if (lane >= kLanes) return;
#pragma unroll
  for (int c = 0; c < kPer; ++c) parts.sums[warp][lane * kPer + c] = part.sums[c];
}

__device__ __forceinline__ float combined(const RotaryParts& parts, int column) {
  float most = parts.greatest[0], total = 0, sum = 0;
#pragma unroll
  for (int w = 1; w < kRotaryWarps; ++w) most = parts.greatest[w] > most || isnan(parts.greatest[w]) ? parts.greatest[w] : most;
#pragma unroll
  for (int w = 0; w < kRotaryWarps; ++w) {
    if (parts.total[w] == 0) continue;  // the warp had no keys
    const float factor = expf(parts.greatest[w] - most);
    total = fmaf(parts.total[w], factor, total), sum = fmaf(parts.sums[w][column], factor, sum);
  }
  return sum / total;
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kRotaryWarps * 32) rotary_attention_kernel(const __grid_constant__ RotaryLaunch<T> launch) {
  __shared__ float query[kRotaryHeadMost];
  __shared__ alignas(16) T new_keys[kNewMost][kRotaryHeadMost];
  __shared__ RotaryParts parts;
  constexpr int kGroups = 32 / kLanes, kWarpKeys = kSteps * kGroups;  // keys that a warp loads together
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int group = lane / kLanes, column = lane % kLanes * kPer, D = launch.D, half = D / 2;
  const bool is_column = column < D;
  wait_for_grid_before();
  let_dependents_start();
  const Place place = place_of(launch);
  const int share = launch.heads / launch.key_heads, key_head = place.head / share;
  const std::int64_t position_size = static_cast<std::int64_t>(launch.heads + 2 * launch.key_heads) * D;
  const T* const projected = launch.projected + place.sample * launch.n * position_size;
  const T* const new_key = projected + (launch.heads + key_head) * D;  // of the first new position
  const T* const new_value = new_key + static_cast<std::int64_t>(launch.key_heads) * D;
  const std::int64_t ring_at = (place.sample * launch.key_heads + key_head) * launch.ring * D;
  const auto old = static_cast<int>(place.first > place.begin ? place.first - place.begin : 0);  // keys in the ring
  const int row = old > 0 ? static_cast<int>(place.begin % launch.ring) : 0;

  Numbers<T> keys[kSteps], values[kSteps];
  const auto key_of = [&](int at, int s) { return at + s * kGroups + group; };
  const auto load = [&](int at) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      keys[s] = {}, values[s] = {};
      if (key_of(at, s) >= old || !is_column) continue;
      std::int64_t from = row + key_of(at, s);
      if (from >= launch.ring) from -= launch.ring;
      keys[s] = *reinterpret_cast<const Numbers<T>*>(launch.keys + ring_at + from * D + column);
      values[s] = *reinterpret_cast<const Numbers<T>*>(launch.values + ring_at + from * D + column);
    }
  };
  load(warp * kWarpKeys);
  const bool writes = launch.keys != nullptr && place.i == launch.n - 1 && place.head % share == 0;
  for (int pair = thread; pair < (place.i + 2) * half; pair += kRotaryWarps * 32) {
    const int l = pair / half - 1, i = pair % half;  // -1: the query
    if (l < 0) {
      rotate_pair(launch, projected + place.i * position_size + place.head * D, i, static_cast<double>(place.first + place.i),
                  [&](int at, T number) { query[at] = launch.scale * convert<float>(number); });
      continue;
    }
    T* const to = writes ? launch.keys + ring_at + (place.first + l) % launch.ring * D : nullptr;
    rotate_pair(launch, new_key + l * position_size, i, static_cast<double>(place.first + l), [&](int at, T number) {
      new_keys[l][at] = number;
      if (writes) to[at] = number;
    });
  }
  if (writes)
    for (int at = thread; at < launch.n * D; at += kRotaryWarps * 32)
      launch.values[ring_at + (place.first + at / D) % launch.ring * D + at % D] = new_value[at / D * position_size + at % D];
  __syncthreads();
  if (thread == 0 && launch.keys != nullptr) count_on(launch, place.first);

  float own_query[kPer];
#pragma unroll
  for (int c = 0; c < kPer; ++c) own_query[c] = is_column ? query[column + c] : 0.0F;
  RotaryPart part;
  for (int at = warp * kWarpKeys; at < old; at += kRotaryWarps * kWarpKeys) {
    add_keys<kLanes>(part, own_query, keys, values, [&](int s) { return key_of(at, s) < old; });
    load(at + kRotaryWarps * kWarpKeys);
  }
  if (warp == kRotaryWarps - 1) {
    const auto is_new = [&](int s) { return key_of(0, s) <= place.i && place.first + key_of(0, s) >= place.begin; };
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      keys[s] = {}, values[s] = {};
      if (!is_new(s) || !is_column) continue;
      keys[s] = *reinterpret_cast<const Numbers<T>*>(&new_keys[key_of(0, s)][column]);
      values[s] = *reinterpret_cast<const Numbers<T>*>(new_value + key_of(0, s) * position_size + column);
    }
    add_keys<kLanes>(part, own_query, keys, values, is_new);
  }
  keep_part<kLanes>(parts, part, warp, lane);
  __syncthreads();
  if (thread >= D) return;
  const std::int64_t to = (place.sample * launch.n + place.i) * launch.heads + place.head;
  launch.out[to * D + thread] = convert<T>(combined(parts, thread));
}

template <class T>
void launch_rotary(const Tensor& out, const RotaryAttention& in, cudaStream_t stream) {
  RotaryLaunch<T> launch{};
  launch.projected = static_cast<const T*>(in.projected.raw()), launch.out = static_cast<T*>(out.raw());
  launch.n = static_cast<int>(in.projected.size(1));
  launch.heads = static_cast<int>(in.heads), launch.key_heads = static_cast<int>(in.key_heads);
  launch.D = static_cast<int>(in.projected.size(2) / (in.heads + 2 * in.key_heads));
  if (in.keys.defined()) {
    launch.keys = static_cast<T*>(in.keys.raw()), launch.values = static_cast<T*>(in.values.raw());
    launch.position = static_cast<unsigned long long*>(in.position.raw());
    launch.ring = in.keys.size(2);
  }
  launch.window = in.window, launch.scale = static_cast<float>(in.scale);
  launch.step = -std::log(in.rotation.base) / static_cast<double>(std::max(1, launch.D / 2));
  launch.rotates = in.rotates, launch.interleaved = in.rotation.interleaved, launch.sees_only_newest = in.sees_only_newest;
  auto* kernel = rotary_attention_kernel<T, 16>;
  if (launch.D <= 8 * kPer) kernel = rotary_attention_kernel<T, 8>;
  if (launch.D <= 4 * kPer) kernel = rotary_attention_kernel<T, 4>;
  const auto blocks = static_cast<unsigned>(in.projected.size(0) * in.heads * launch.n);
  launch_behind(kernel, blocks, kRotaryWarps * 32, 0, stream, launch);
}

}  // namespace

std::int64_t rotary_attention_positions(DType dtype, std::int64_t head_size) {
  const bool fits = dtype != DType::f64 && dtype != DType::i64 && head_size % kPer == 0 && head_size <= kRotaryHeadMost;
  return fits ? kNewMost : 0;
}

void rotary_attention(const Tensor& out, const RotaryAttention& in, cudaStream_t stream) {
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, float> || kIsHalf<T>) launch_rotary<T>(out, in, stream);
  });
  check_launch("rotary attention");
}

}  // namespace polyphase::cuda
