#pragma once
// From rows of a tensor to an operand tile in shared memory, [part][plane][block of rows][position][kVector rows].
//
// Plain loads, whatever the alignment; each element is converted once. Whatever begins at another position of the tile, a tap
// or a dilation, is the same tile at another start address, since a position is 16 bytes.

#include <cstdint>

#include "cuda/conv/tensor_core/operand/tile.hpp"
#include "cuda/conv/tensor_core/operand/traits.cuh"
#include "cuda/conv/tensor_core/recompute/recompute.cuh"

namespace polyphase::cuda::tensor_core {

inline constexpr int kProducers = 128;

/// Where a tile's elements come from.
template <class T>
struct Fetch {
  const T* base;     // row 0, plane 0, position 0
  int first, last;   // offsets from base that lie inside the row
  int rows, planes;  // that exist
  bool inside;       // no test needed
};

/// `base` is element e0 of a row of `length` elements, of which `rows` follow each other.
template <class T>
__device__ __forceinline__ Fetch<T> make_fetch(const Tile& tile, const T* base, std::int64_t e0, std::int64_t length,
                                               std::int64_t rows, std::int64_t planes) {
  Fetch<T> fetch;
  fetch.base = base;
  fetch.first = static_cast<int>(max(-e0, static_cast<std::int64_t>(-0x7fffffff)));
  fetch.last = static_cast<int>(min(length - e0, static_cast<std::int64_t>(0x7fffffff)));
  fetch.rows = static_cast<int>(min(static_cast<std::int64_t>(tile.rows), rows));
  fetch.planes = static_cast<int>(min(static_cast<std::int64_t>(tile.planes), planes));
  const int reach = tile.stride * (tile.window - 1) + (tile.planes - 1) * tile.plane_step;
  fetch.inside = fetch.first <= 0 && reach < fetch.last && fetch.rows == tile.rows && fetch.planes == tile.planes;
  return fetch;
}

template <class Operand>
struct TileMaker {
  using T = typename Operand::Source;
  static constexpr int kVector = Operand::kVector;
  static constexpr int kBatch = kVector == 8 ? 2 : 4;  // 16 loads in flight a thread, 16 more behind them

  const Tile& tile;
  SplitRange range;
  float scale;

  /// Item `item` of a tile: rows block*kVector.. of a plane, position u.
  struct Where {
    int block, plane, u;
  };
  __device__ __forceinline__ Where where(int item) const {
    const auto index = static_cast<std::uint32_t>(item);
    const std::uint32_t block = tile.by_plane_window.divide(index);
    const std::uint32_t rest = index - block * tile.by_plane_window.divisor;
    const std::uint32_t u = tile.planes == 1 ? rest : tile.by_planes.divide(rest);
    return {static_cast<int>(block), static_cast<int>(rest - u * static_cast<std::uint32_t>(tile.planes)), static_cast<int>(u)};
  }

  __device__ __forceinline__ void load(const Fetch<T>& fetch, int first_item, T (&values)[kBatch][kVector]) const {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int item = first_item + j * kProducers;
      if (item >= tile.items) break;
      const Where at = where(item);
      const int e = tile.stride * at.u + at.plane * tile.plane_step;
      const T* from = fetch.base + at.block * kVector * tile.length + e;
      if (fetch.inside) {
#pragma unroll
        for (int c = 0; c < kVector; ++c) values[j][c] = from[c * tile.length];
      } else {
        const bool exists = e >= fetch.first && e < fetch.last && at.plane < fetch.planes;
#pragma unroll
        for (int c = 0; c < kVector; ++c)
          values[j][c] = exists && at.block * kVector + c < fetch.rows ? from[c * tile.length] : T(0.0F);
      }
    }
  }

  /// The faults of what was stored.
  __device__ __forceinline__ SuspectCount store(unsigned char* stage, int first_item,
                                                const T (&values)[kBatch][kVector]) const {
    SuspectCount suspect_count = 0;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int item = first_item + j * kProducers;
      if (item >= tile.items) break;
      const Where at = where(item);
      if constexpr (Operand::kSplit) {
#pragma unroll
        for (int c = 0; c < kVector; ++c)
          suspect_count = joined(suspect_count, suspect_count_of_number(range.of(values[j][c])));
      }
      uint4 parts[Operand::kParts];
      convert<Operand>(values[j], scale, parts);
      const int blocks = tile.rows / kVector;
      unsigned char* to = stage + ((at.plane * blocks + at.block) * tile.window + at.u) * 16;
#pragma unroll
      for (int part = 0; part < Operand::kParts; ++part) *reinterpret_cast<uint4*>(to + part * tile.items * 16) = parts[part];
    }
    return suspect_count;
  }
};

}  // namespace polyphase::cuda::tensor_core
