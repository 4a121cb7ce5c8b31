#pragma once
// out[i] = op(inputs[0][i], ...) for one element type: f32, f64, f16 or bf16 (16-bit types are computed in f32 and rounded
// once).
//
// A thread processes kUnroll packs of kPack neighbouring flat positions. Flat aligned operands move in 16-byte accesses (8
// bytes for heavy operations on 16-bit types), constants are read once, operands that are the same along rows once per pack,
// and everything else element by element: the first position of a pack is divided into an index, the others follow along the
// innermost dimension. Bytes: every operand once; operations matter only for the heavy ones. Domain: up to 2^63 positions,
// kMaxRank dimensions. Light: 2 packs per thread, so that unary operations keep 64 KB per SM outstanding. Heavy: 1 pack,
// because the code is large.

#include <algorithm>
#include <cstdint>

#include "cuda/elementwise/elementwise.hpp"
#include "cuda/elementwise/elementwise_functions.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// The layout of an operand's elements over the flat positions. rows: one element for a row of whole packs.
enum class Access : std::uint8_t { packs, flat, constant, rows, strided };

template <int kInputs>
struct MapLaunch {
  Strided<kInputs + 1> space;
  Access access[kInputs + 1];
  const void* input[kInputs];
  void* out;
  MapOp op;
  double p, q;
};

template <class T, bool kHeavy>
inline constexpr int kMapPack = (kHeavy && kIsHalf<T> ? 8 : 16) / static_cast<int>(sizeof(T));
template <bool kHeavy>
inline constexpr int kMapUnroll = kHeavy ? 1 : 2;

/// Calls at(i, element offset of operand k) for the `n` positions from `flat` on.
template <int kOperands, int kPack, class At>
__device__ __forceinline__ void for_strided(const Strided<kOperands>& space, int k, std::int64_t flat, std::int64_t n,
                                            const At& at) {
  const int last = space.rank - 1;
  const std::int64_t inner = space.sizes[last].size;
  std::int64_t index = 0, offset = 0;
  space.walk(flat, [&](int d, std::int64_t i) {
    offset += i * space.strides[k][d];
    if (d == last) index = i;
  });
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if (i >= n) return;
    if (index == inner) {  // continue in the next row
      index = 0;
      offset = space.offset(k, flat + i);
    }
    at(i, offset);
    ++index;
    offset += space.strides[k][last];
  }
}

template <class T, int kPack, int kOperands>
__device__ __forceinline__ Pack<T, kPack> load_pack(const Strided<kOperands>& space, Access access, int k, const T* from,
                                                    std::int64_t flat, std::int64_t n) {
  Pack<T, kPack> pack{};
  if (access == Access::packs && n >= kPack) {
    pack = *reinterpret_cast<const Pack<T, kPack>*>(from + flat);
  } else if (access == Access::constant) {
    const T value = *from;
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.at[i] = value;
  } else if (access == Access::rows) {
    const T value = from[space.offset(k, flat)];
#pragma unroll
    for (int i = 0; i < kPack; ++i) pack.at[i] = value;
  } else if (access == Access::strided) {
    for_strided<kOperands, kPack>(space, k, flat, n, [&](int i, std::int64_t offset) { pack.at[i] = from[offset]; });
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < n) pack.at[i] = from[flat + i];
  }
  return pack;
}

template <class T, int kPack, int kOperands>
__device__ __forceinline__ void store_pack(const Strided<kOperands>& space, Access access, T* to, std::int64_t flat,
                                           std::int64_t n, const Pack<T, kPack>& pack) {
  if (access == Access::packs && n >= kPack) {
    *reinterpret_cast<Pack<T, kPack>*>(to + flat) = pack;
  } else if (access == Access::strided) {
    for_strided<kOperands, kPack>(space, 0, flat, n, [&](int i, std::int64_t offset) { to[offset] = pack.at[i]; });
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < n) to[flat + i] = pack.at[i];
  }
}

/// One element type and number of inputs. kStrided: some operand is neither flat nor constant.
template <class T, int kInputs, bool kHeavy, bool kStrided>
__global__ void __launch_bounds__(kThreads) map_kernel(const __grid_constant__ MapLaunch<kInputs> launch) {
  using A = MathOf<T>;
  constexpr int kPack = kMapPack<T, kHeavy>;
  constexpr int kUnroll = kStrided ? 1 : kMapUnroll<kHeavy>;
  const auto& space = launch.space;
  const auto access_of = [&](int k) {  // lets the compiler drop the strided code if it is not needed
    const Access access = launch.access[k];
    return !kStrided && access == Access::strided ? Access::flat : access;
  };
  const std::int64_t block = static_cast<std::int64_t>(kThreads) * kPack * kUnroll;
  for (std::int64_t start = blockIdx.x * block; start < space.count; start += gridDim.x * block) {
    const std::int64_t first = start + threadIdx.x * kPack;
    Pack<T, kPack> in[kUnroll][4];  // (packs of a thread, inputs)
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t flat = first + u * (kThreads * kPack);
#pragma unroll
      for (int k = 0; k < kInputs; ++k)
        if (flat < space.count)
          in[u][k] = load_pack<T, kPack>(space, access_of(k + 1), k + 1, static_cast<const T*>(launch.input[k]), flat,
                                         space.count - flat);
    }
    Pack<T, kPack> out[kUnroll];
    const auto each = [&](auto function) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
#pragma unroll
        for (int i = 0; i < kPack; ++i) {
          const auto input = [&](int k) { return k < kInputs ? convert<A>(in[u][k].at[i]) : A(0); };
          out[u].at[i] = convert<T>(static_cast<A>(function(input(0), input(1), input(2), input(3))));
        }
    };
    if constexpr (kHeavy) {
      apply_heavy<A, kInputs>(launch.op, static_cast<A>(launch.p), each);
    } else {
      apply_light<A, kInputs>(launch.op, static_cast<A>(launch.p), static_cast<A>(launch.q), each);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t flat = first + u * (kThreads * kPack);
      if (flat < space.count)
        store_pack<T, kPack>(space, access_of(0), static_cast<T*>(launch.out), flat, space.count - flat, out[u]);
    }
  }
}

template <class T, int kInputs, bool kHeavy>
void launch_map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  constexpr int kPack = kMapPack<T, kHeavy>;
  const Loop loop = make_loop(out, inputs);
  MapLaunch<kInputs> launch{Strided<kInputs + 1>(loop), {}, {}, out.raw(), op, scalars.p, scalars.q};
  bool strided = false;
  for (int k = 0; k <= kInputs; ++k) {
    const void* data = k == 0 ? out.raw() : inputs[static_cast<std::size_t>(k - 1)].raw();
    if (k > 0) launch.input[k - 1] = data;
    launch.access[k] = loop.is_flat(k)       ? is_aligned(data, sizeof(T) * kPack) ? Access::packs : Access::flat
                       : loop.is_constant(k) ? Access::constant
                       : k > 0 && loop.inner_stride(k) == 0 && loop.inner_size() % kPack == 0 ? Access::rows
                                                                                              : Access::strided;
    strided = strided || launch.access[k] == Access::strided;
  }
  const unsigned grid = grid_for(loop.count, kThreads * kPack * (strided ? 1 : kMapUnroll<kHeavy>));
  if (strided) {
    map_kernel<T, kInputs, kHeavy, true><<<grid, kThreads, 0, stream>>>(launch);
  } else {
    map_kernel<T, kInputs, kHeavy, false><<<grid, kThreads, 0, stream>>>(launch);
  }
  check_launch("map");
}

/// map() for one element type; out is not empty.
template <class T>
void map_as(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  const bool heavy = is_heavy(op);
  switch (inputs_of(op)) {
    case 1:
      return heavy ? launch_map<T, 1, true>(op, out, inputs, scalars, stream)
                   : launch_map<T, 1, false>(op, out, inputs, scalars, stream);
    case 2:
      return heavy ? launch_map<T, 2, true>(op, out, inputs, scalars, stream)
                   : launch_map<T, 2, false>(op, out, inputs, scalars, stream);
    case 3:
      return heavy ? launch_map<T, 3, true>(op, out, inputs, scalars, stream)
                   : launch_map<T, 3, false>(op, out, inputs, scalars, stream);
    default:
      return launch_map<T, 4, true>(op, out, inputs, scalars, stream);
  }
}

}  // namespace polyphase::cuda
