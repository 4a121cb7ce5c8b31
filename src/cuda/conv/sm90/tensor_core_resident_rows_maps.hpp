#pragma once
// The tensor maps through which the kernel of tensor_core_resident_rows.cuh reads its source. Host only but for RowMaps.

#include <cuda.h>

#include <cstdint>

#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"
#include "cuda/conv/sm90/tensor_core_wgrad_maps.hpp"
#include "cuda/conv/tap_gemm.hpp"

namespace polyphase::cuda::tensor_core {

/// Every classes-th row of the source, of all samples and groups. Dimensions: numbers, rows of the class, 1.
struct RowMaps {
  CUtensorMap map[kRowClassesMost];
  int offset[kRowClassesMost];  // of the rows' first number: a map begins at a multiple of 16 bytes
};

/// Maps of `source`, numbers of `element_bytes`; none where steps.classes == 0.
[[nodiscard]] inline RowMaps make_row_maps(const TapGemm& form, const RowSteps& steps, const void* source, int element_bytes) {
  const auto bytes = static_cast<std::uint64_t>(element_bytes), classes = static_cast<std::uint64_t>(steps.classes);
  const auto length = static_cast<std::uint64_t>(form.source_length);
  const auto rows = static_cast<std::uint64_t>(form.N * form.G * form.rows);
  RowMaps maps{};
  for (int c = 0; c < steps.classes; ++c) {
    const auto own = static_cast<std::uint64_t>(c);
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(source) + own * length * bytes;
    WgradMapOf of{};
    of.address = first / 16 * 16;
    of.offset = static_cast<int>((first - of.address) / bytes);
    of.numbers = length + static_cast<std::uint64_t>(of.offset);
    of.rows = rows > own ? (rows - own + classes - 1) / classes : 1;
    of.samples = 1;
    of.row_bytes = classes * length * bytes;
    of.sample_bytes = of.rows * of.row_bytes;
    of.box_numbers = static_cast<std::uint32_t>(steps.pitch) / static_cast<std::uint32_t>(element_bytes);
    of.box_rows = static_cast<std::uint32_t>(kRowsOfStep / steps.classes);
    of.bytes = element_bytes;
    maps.map[c] = encode_map(of);
    maps.offset[c] = of.offset;
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
