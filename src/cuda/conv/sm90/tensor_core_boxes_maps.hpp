#pragma once
// The tensor maps of the kernel of tensor_core_boxes.cuh. Host only but for the structure.

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "cuda/conv/sm90/tensor_core_boxes_steps.hpp"
#include "cuda/conv/sm90/tensor_core_wgrad_maps.hpp"
#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::tensor_core {

/// Every classes-th row of the source and of the output, of all samples and groups. Dimensions: numbers, rows of the class, 1.
/// Of whole output rows: numbers of a line, rows, lines.
struct BoxesMaps {
  CUtensorMap load[kBoxesLoadMost], store[kBoxesStoreMost];
  int load_offset[kBoxesLoadMost], store_offset[kBoxesStoreMost];  // of rows' first numbers: a map begins at a boundary before
  int store_numbers[kBoxesStoreMost];  // of a row that boxes store, the offset included: a store writes whole 16 bytes
};

/// Class `own` of `classes` of an array of `rows` rows: boxes of `width` numbers and `box_rows` rows, from `boundary` bytes.
[[nodiscard]] inline WgradMapOf boxes_map_of(const void* array, std::int64_t rows, std::int64_t length, int own, int classes,
                                             std::uint64_t boundary, int width, int box_rows) {
  constexpr std::uint64_t kBytes = sizeof(float);
  const auto count = static_cast<std::uint64_t>(classes), skipped = static_cast<std::uint64_t>(own);
  const auto all = static_cast<std::uint64_t>(rows), row = static_cast<std::uint64_t>(length) * kBytes;
  const std::uint64_t first = reinterpret_cast<std::uint64_t>(array) + skipped * row;
  WgradMapOf of{};
  of.address = first / boundary * boundary;
  of.offset = static_cast<int>((first - of.address) / kBytes);
  of.numbers = static_cast<std::uint64_t>(length + of.offset);
  of.rows = all / count;
  of.samples = 1;
  of.row_bytes = count * row;
  of.sample_bytes = of.rows * of.row_bytes;
  of.box_numbers = static_cast<std::uint32_t>(width);
  of.box_rows = static_cast<std::uint32_t>(box_rows / classes);
  of.bytes = static_cast<int>(kBytes);
  return of;
}

[[nodiscard]] inline BoxesMaps make_boxes_maps(const TapGemm& form, const BoxesSteps& steps, const void* source,
                                               const void* out) {
  BoxesMaps maps{};
  const int loads = 1 << steps.load_bits, stores = 1 << steps.store_bits;
  for (int own = 0; own < loads; ++own) {
    const WgradMapOf of = boxes_map_of(source, form.N * form.G * form.rows, form.source_length, own, loads, 16, steps.raw_pitch,
                                       steps.chunk_rows);
    maps.load[own] = encode_map(of);
    maps.load_offset[own] = of.offset;
  }
  const std::int64_t rows = form.N * form.G * form.out_channels;
  const bool is_whole = steps.kind == BoxesRows::whole;
  for (int own = 0; own < stores; ++own) {
    WgradMapOf of = boxes_map_of(out, rows, form.out_length, own, stores, 32, kBoxesWidth, steps.columns);
    if (is_whole) {
      of.samples = static_cast<std::uint64_t>(std::max<std::int64_t>(form.out_length / kBoxesLine, 1));
      of.sample_bytes = kBoxesLine * sizeof(float);
      of.numbers = of.box_numbers = kBoxesLine;
      of.box_samples = kBoxesPositions / kBoxesLine;
      of.swizzled = true;
      maps.store[own] = encode_map(of);
      continue;
    }
    maps.store_numbers[own] = static_cast<int>(of.numbers / 4 * 4);
    of.numbers = std::max<std::uint64_t>(of.numbers / 4 * 4, 4);
    maps.store[own] = encode_map(of);
    maps.store_offset[own] = of.offset;
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
