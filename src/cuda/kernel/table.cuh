#pragma once
// Lists of arrays as one kernel parameter: a table of pointers (below 4 KB). Each array is split into chunks, one block each; a
// block finds its array by bisection over the arrays' first blocks.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "tensor/error.hpp"

namespace polyphase::cuda {

inline constexpr std::int64_t kChunk = 4096;  ///< elements per block by default

/// Row: pointers and `std::int64_t count`, the number of their elements. Step: what all rows share.
template <class Row, class Step>
struct Table {
  static constexpr std::size_t kRows = (4096 - sizeof(Step) - 24) / (sizeof(Row) + sizeof(std::uint32_t));
  Row row[kRows];                    // (kRows)
  std::uint32_t first_block[kRows];  // (kRows), ascending
  int rows;
  Step step;
};

/// Nothing is shared.
struct NoStep {};

/// Calls launch(table, blocks) with tables that together contain all rows except empty ones.
template <class Row, class Step, class Launch>
void for_each_table(std::span<const Row> rows, const Step& step, const Launch& launch, std::int64_t chunk = kChunk) {
  Table<Row, Step> table{};
  static_assert(sizeof table <= 4096, "kernel parameters end at 4 KB on GPUs and drivers that must work");
  table.step = step;
  std::uint32_t blocks = 0;
  const auto flush = [&] {
    if (table.rows > 0) launch(table, blocks);
    table.rows = 0, blocks = 0;
  };
  for (const Row& row : rows) {
    if (row.count == 0) continue;
    const auto needed = static_cast<std::uint32_t>((row.count + chunk - 1) / chunk);
    if (table.rows == static_cast<int>(table.kRows) || blocks > 0x7fffffffu - needed) flush();
    table.row[table.rows] = row;
    table.first_block[table.rows++] = blocks;
    blocks += needed;
  }
  flush();
}

/// Calls run(T{}) for each floating-point element type that dtype_of(i) of one of `count` items is. Before that, throws
/// DTypeError naming `operation` for any other type.
template <class DTypeOfItem, class Run>
void for_each_floating_type(const char* operation, std::size_t count, const DTypeOfItem& dtype_of_item, const Run& run) {
  bool present[8] = {};
  for (std::size_t i = 0; i < count; ++i) {
    const DType dtype = dtype_of_item(i);
    require<DTypeError>(is_floating_point(dtype), operation, ": expected floating-point parameters, got ", dtype);
    present[static_cast<std::size_t>(dtype)] = true;
  }
  if (present[static_cast<std::size_t>(DType::f32)]) run(float{});
  if (present[static_cast<std::size_t>(DType::f64)]) run(double{});
  if (present[static_cast<std::size_t>(DType::f16)]) run(__half{});
  if (present[static_cast<std::size_t>(DType::bf16)]) run(__nv_bfloat16{});
}

#ifdef __CUDACC__

/// The row of the calling block: the last one whose first block is not greater.
template <class Row, class Step>
__device__ __forceinline__ int row_of_block(const Table<Row, Step>& table) {
  int low = 0, high = table.rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.first_block[middle] <= blockIdx.x)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// The calling block's chunk of its row.
struct ChunkPlace {
  std::int64_t start;
  int count;
};
template <class Row, class Step>
__device__ __forceinline__ ChunkPlace chunk_of_block(const Table<Row, Step>& table, int row, std::int64_t chunk = kChunk) {
  const std::int64_t start = (blockIdx.x - table.first_block[row]) * chunk;
  return {start, static_cast<int>(min(chunk, table.row[row].count - start))};
}

__device__ __forceinline__ std::uintptr_t address_bits(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// The block's threads process `count` elements of T: visit(width, i) for `width` (an integral_constant) elements from i on, 16
/// bytes at a time if the arrays are aligned; `addresses` is the bitwise OR of all their addresses.
template <class T, class Visit>
__device__ __forceinline__ void visit_chunk(std::uintptr_t addresses, int count, const Visit& visit) {
  constexpr int kPack = 16 / sizeof(T);
  const int packed = addresses % 16 == 0 ? count / kPack * kPack : 0;
  for (int i = static_cast<int>(threadIdx.x) * kPack; i < packed; i += kThreads * kPack)
    visit(std::integral_constant<int, kPack>{}, i);
  for (int i = packed + static_cast<int>(threadIdx.x); i < count; i += kThreads) visit(std::integral_constant<int, 1>{}, i);
}

#endif

}  // namespace polyphase::cuda
