#pragma once
// The tensor maps of the kernel of kernel.cuh. Host only but for the structure.

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"
#include "cuda/conv/tensor_core/wgrad/maps.hpp"

namespace polyphase::cuda::tensor_core {

/// Every classes-th row of the source and of the output, of all samples and groups. Dimensions: numbers, rows of the class, 1.
/// Of whole output rows: numbers of a line, rows, lines.
struct BoxesMaps {
  CUtensorMap load[kBoxesLoadMost], store[kBoxesStoreMost];
  int load_offset[kBoxesLoadMost], store_offset[kBoxesStoreMost];  // of rows' first numbers: a map begins at a boundary before
  int store_numbers[kBoxesStoreMost];  // of a row that boxes store, the offset included: a store writes whole 16 bytes
};

/// The same of what lies beside the output, from `offset` numbers behind a map's beginning on.
struct BoxesBeside {
  CUtensorMap load[kBoxesStoreMost];
  int offset[kBoxesStoreMost];
};
/// Of a residual or of what gives a derivative; of both the latter first.
struct BoxesBesides {
  BoxesBeside of[2];
};
struct BoxesNothing {};

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

/// Every `classes`-th row of an array laid out like the output, as it is stored.
[[nodiscard]] inline WgradMapOf boxes_output_map(const TapGemm& form, const BoxesSteps& steps, const void* array, int own,
                                                 std::uint64_t boundary) {
  WgradMapOf of = boxes_map_of(array, form.N * form.G * form.out_channels, form.out_length, own, 1 << steps.store_bits,
                               boundary, kBoxesWidth, steps.columns);
  if (steps.kind == BoxesRows::whole) {
    of.samples = static_cast<std::uint64_t>(std::max<std::int64_t>(form.out_length / kBoxesLine, 1));
    of.sample_bytes = kBoxesLine * sizeof(float);
    of.numbers = of.box_numbers = kBoxesLine;
    of.box_samples = kBoxesPositions / kBoxesLine;
    of.swizzled = true;
  }
  return of;
}

/// `beside`: at a multiple of 16 bytes from the output.
[[nodiscard]] inline BoxesBeside make_boxes_beside(const TapGemm& form, const BoxesSteps& steps, const void* beside) {
  BoxesBeside maps{};
  for (int own = 0; own < 1 << steps.store_bits; ++own) {
    const WgradMapOf of = boxes_output_map(form, steps, beside, own, 16);
    maps.load[own] = encode_map(of);
    maps.offset[own] = of.offset;
  }
  return maps;
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
  for (int own = 0; own < stores; ++own) {
    WgradMapOf of = boxes_output_map(form, steps, out, own, 32);
    if (steps.kind != BoxesRows::whole) {
      maps.store_numbers[own] = static_cast<int>(of.numbers / 4 * 4);
      of.numbers = std::max<std::uint64_t>(of.numbers / 4 * 4, 4);
      maps.store_offset[own] = of.offset;
    }
    maps.store[own] = encode_map(of);
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
