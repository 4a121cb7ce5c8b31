#pragma once
// out[i] = op(inputs[0][i], ...) for one element type: f32, f64, f16 or bf16 (16-bit types are computed in f32 and rounded
// once).
//
// A thread processes packs of neighbouring flat positions. If every operand is flat or has contiguous rows of whole packs,
// aligned, or is the same along whole packs, packs move in 16-byte accesses (8 bytes for long operations on 16-bit types), and
// every operation has a kernel of its own: one body with all of them takes so many registers that too few threads of an SM
// remain to keep the memory busy. Else one kernel moves packs element by element: their first position is divided into an
// index, the others follow along the innermost dimension. Bytes: every operand once; operations matter only for the long ones.
// Domain: up to 2^63 positions, kMaxRank dimensions.

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cuda/elementwise/elementwise.hpp"
#include "cuda/elementwise/elementwise_functions.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// The layout of an operand's elements over the flat positions. row_packs: rows of whole aligned packs. rows: one element for a
/// row of whole packs.
enum class Access : std::uint8_t { packs, row_packs, rows, constant, flat, strided };
/// Whether every pack is one element or one aligned access.
[[nodiscard]] constexpr bool is_whole(Access access) { return access < Access::flat; }

template <int kInputs>
struct MapLaunch {
  Strided<kInputs + 1> space;
  Access access[kInputs + 1];
  const void* input[kInputs];
  void* out;
  double p, q;
};

/// Elements of a pack, and packs of a thread: enough loads outstanding for the memory, without many registers.
template <class T, MapOp kOp>
inline constexpr int kMapPack = (is_long(kOp) && kIsHalf<T> ? 8 : 16) / static_cast<int>(sizeof(T));
template <MapOp kOp>  // two packs of the three operands of squared_difference_grad spill
inline constexpr int kMapUnroll = is_long(kOp) || kOp == MapOp::squared_difference_grad ? 1 : 2;
inline constexpr int kStridedPack = 4;

/// The function of the elements input(0), input(1), ...; what it gives for others is ignored.
template <class T, MapOp kOp, class Input>
__device__ __forceinline__ MathOf<T> map_one(MathOf<T> p, MathOf<T> q, const Input& input) {
  return evaluate<kOp, kIsHalf<T>>(input(0), input(1), input(2), input(3), p, q);
}

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

template <bool kFlat, class T, int kPack, int kOperands>
__device__ __forceinline__ Pack<T, kPack> load_whole(const Strided<kOperands>& space, Access access, int k, const T* from,
                                                     std::int64_t flat) {
  const std::int64_t offset = access == Access::packs      ? flat
                              : access == Access::constant ? 0
                              : kFlat                      ? flat
                                                           : space.offset(k, flat);
  if (access == Access::packs || (!kFlat && access == Access::row_packs))
    return *reinterpret_cast<const Pack<T, kPack>*>(from + offset);
  Pack<T, kPack> pack;
  const T value = from[offset];
#pragma unroll
  for (int i = 0; i < kPack; ++i) pack.at[i] = value;
  return pack;
}

/// For operands whose access is whole, with kFlat packs or constants. Elements after the last pack are those of such operands.
template <class T, MapOp kOp, bool kFlat>
__global__ void __launch_bounds__(kThreads) map_kernel(const __grid_constant__ MapLaunch<inputs_of(kOp)> launch) {
  using A = MathOf<T>;
  constexpr int kInputs = inputs_of(kOp), kPack = kMapPack<T, kOp>, kUnroll = kMapUnroll<kOp>;
  const auto& space = launch.space;
  const auto p = static_cast<A>(launch.p), q = static_cast<A>(launch.q);
  const auto input_of = [&](int k) { return static_cast<const T*>(launch.input[k]); };
  auto* const to = static_cast<T*>(launch.out);
  const std::int64_t block = static_cast<std::int64_t>(kThreads) * kPack * kUnroll;
  for (std::int64_t start = blockIdx.x * block; start < space.count; start += gridDim.x * block) {
    Pack<T, kPack> in[kUnroll][kInputs];
    const auto for_packs = [&](const auto& use) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t flat = start + (u * kThreads + threadIdx.x) * kPack;
        if (flat + kPack <= space.count) use(in[u], flat);
      }
    };
    for_packs([&](auto& packs, std::int64_t flat) {
#pragma unroll
      for (int k = 0; k < kInputs; ++k)
        packs[k] = load_whole<kFlat, T, kPack>(space, launch.access[k + 1], k + 1, input_of(k), flat);
    });
    for_packs([&](auto& packs, std::int64_t flat) {
      A values[kPack];
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        values[i] = map_one<T, kOp>(p, q, [&](int k) { return k < kInputs ? convert<A>(packs[k % kInputs].at[i]) : A(0); });
      const std::int64_t offset = kFlat || launch.access[0] == Access::packs ? flat : space.offset(0, flat);
      *reinterpret_cast<Pack<T, kPack>*>(to + offset) = rounded<T>(values);
    });
  }
  const std::int64_t rest = space.count % kPack, at = space.count - rest + threadIdx.x;
  if (blockIdx.x > 0 || threadIdx.x >= rest) return;
  to[at] = convert<T>(map_one<T, kOp>(p, q, [&](int k) {
    return k < kInputs ? convert<A>(input_of(k % kInputs)[launch.access[k % kInputs + 1] == Access::constant ? 0 : at]) : A(0);
  }));
}

/// Any layout.
template <class T, int kInputs>
__global__ void __launch_bounds__(kThreads) map_strided_kernel(const __grid_constant__ MapLaunch<kInputs> launch, MapOp op) {
  using A = MathOf<T>;
  using Packed = Pack<T, kStridedPack>;
  const auto& space = launch.space;
  const std::int64_t block = static_cast<std::int64_t>(kThreads) * kStridedPack;
  for (std::int64_t start = blockIdx.x * block; start < space.count; start += gridDim.x * block) {
    const std::int64_t flat = start + threadIdx.x * kStridedPack, n = space.count - flat;
    const auto for_elements = [&](int k, const auto& use) {
      const Access access = launch.access[k];
      if (access == Access::packs || access == Access::flat) {
#pragma unroll
        for (int i = 0; i < kStridedPack; ++i)
          if (i < n) use(i, flat + i);
      } else if (n > 0) {
        for_strided<kInputs + 1, kStridedPack>(space, k, flat, n, use);
      }
    };
    Packed in[kInputs], out;
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      for_elements(k + 1, [&](int i, std::int64_t offset) { in[k].at[i] = static_cast<const T*>(launch.input[k])[offset]; });
    with_op<kInputs>(
        op,
        [&]<MapOp kOp>() {
#pragma unroll
          for (int i = 0; i < kStridedPack; ++i)
            out.at[i] = convert<T>(map_one<T, kOp>(static_cast<A>(launch.p), static_cast<A>(launch.q), [&](int k) {
              return k < kInputs ? convert<A>(in[k % kInputs].at[i]) : A(0);
            }));
        },
        MapOps());
    for_elements(0, [&](int i, std::int64_t offset) { static_cast<T*>(launch.out)[offset] = out.at[i]; });
  }
}

/// How a kernel of packs of `pack` elements reaches the operand at `data`.
inline Access access_of(const Loop& loop, int operand, const void* data, int pack, std::size_t pack_bytes) {
  const bool aligned = is_aligned(data, pack_bytes);
  if (loop.is_flat(operand)) return aligned ? Access::packs : Access::flat;
  if (loop.is_constant(operand)) return Access::constant;
  if (loop.inner_size() % pack != 0) return Access::strided;
  if (loop.inner_stride(operand) == 0) return Access::rows;
  const auto& strides = loop.strides[static_cast<std::size_t>(operand)];
  const bool whole_packs =
      std::all_of(strides.begin(), strides.begin() + loop.rank - 1, [&](std::int64_t stride) { return stride % pack == 0; });
  return aligned && whole_packs && loop.inner_stride(operand) == 1 ? Access::row_packs : Access::strided;
}

template <class T, MapOp kOp>
void launch_map(const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  constexpr int kInputs = inputs_of(kOp), kPack = kMapPack<T, kOp>;
  const Loop loop = make_loop(out, inputs);
  MapLaunch<kInputs> launch{Strided<kInputs + 1>(loop), {}, {}, out.raw(), scalars.p, scalars.q};
  bool whole = true, flat = true;
  for (int k = 0; k <= kInputs; ++k) {
    const void* data = k == 0 ? out.raw() : inputs[static_cast<std::size_t>(k - 1)].raw();
    if (k > 0) launch.input[k - 1] = data;
    const Access access = access_of(loop, k, data, kPack, sizeof(T) * kPack);
    launch.access[k] = access;
    whole = whole && is_whole(access);
    flat = flat && (access == Access::packs || access == Access::constant);
  }
  if (whole) {
    auto* const kernel = flat ? map_kernel<T, kOp, true> : map_kernel<T, kOp, false>;
    kernel<<<grid_for(loop.count, kThreads * kPack * kMapUnroll<kOp>), kThreads, 0, stream>>>(launch);
  } else {
    map_strided_kernel<T, kInputs><<<grid_for(loop.count, kThreads * kStridedPack), kThreads, 0, stream>>>(launch, kOp);
  }
  check_launch("map");
}

/// map() for one element type; out is not empty.
template <class T>
void map_as(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  constexpr auto kLaunch = []<std::size_t... kOps>(std::index_sequence<kOps...>) {
    return std::array{&launch_map<T, static_cast<MapOp>(kOps)>...};
  }
  (MapOps());
  kLaunch[static_cast<std::size_t>(op)](out, inputs, scalars, stream);
}

}  // namespace polyphase::cuda
