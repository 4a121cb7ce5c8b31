#pragma once
// The tensor maps of kernel.cuh. Host only.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/layout.cuh"

namespace polyphase::cuda::tensor_core {

/// For the 16-bit array at `array`: `count` rows of `length` numbers in all; a box has `box_rows`.
[[nodiscard]] inline CUtensorMap tma16_map(const Tma16Rows& rows, const void* array, std::int64_t count, std::int64_t length,
                                           int map, std::uint64_t boundary, std::int64_t numbers, int unit, int box_numbers,
                                           int box_rows) {
  const std::uint64_t first =
      reinterpret_cast<std::uint64_t>(array) + 2 * static_cast<std::uint64_t>(map * rows.group * length);
  TensorMapOf of{};
  of.address = first / boundary * boundary;
  of.numbers = static_cast<std::uint64_t>(numbers * 2 / unit);
  of.rows = static_cast<std::uint64_t>(rows.group);
  of.samples = static_cast<std::uint64_t>(count / rows.classes);
  of.row_bytes = static_cast<std::uint64_t>(2 * (length - rows.skew));
  of.sample_bytes = static_cast<std::uint64_t>(2 * length * rows.classes);
  of.box_numbers = static_cast<std::uint32_t>(box_numbers * 2 / unit);
  of.box_rows = static_cast<std::uint32_t>(rows.group);
  of.box_samples = static_cast<std::uint32_t>(box_rows / rows.classes);
  of.bytes = unit;
  return encode_tensor_map(of);
}

/// Bytes of a number in the source's map: words if rows are whole words.
[[nodiscard]] inline int tma16_unit(const TapGemm& gemm, const Tma16Tiling& tiling) {
  return gemm.source_length % 2 == 0 && tiling.source_offset % 2 == 0 ? 4 : 2;
}

/// `aux`: bytes from the output to the aux operand; 0: none.
[[nodiscard]] inline Tma16Maps make_tma16_maps(const TapGemm& gemm, const Tma16Tiling& tiling, const void* source, void* out,
                                               std::int64_t aux = 0) {
  Tma16Maps maps{};
  const Tma16Rows& in = tiling.source;
  maps.source = tma16_map(in, source, gemm.N * gemm.rows, gemm.source_length, 0, 16,
                          gemm.source_length + tiling.source_offset + (in.group - 1) * in.skew, tma16_unit(gemm, tiling),
                          tiling.pitch, tiling.rows);
  // No box meets a row's end.
  const auto box_of = [&](const void* array, int map) {
    return tma16_map(tiling.out, array, gemm.N * gemm.columns, gemm.out_length, map, 32, gemm.out_length + 64, 4, tiling.window,
                     tiling.columns);
  };
  maps.has_aux = aux != 0 && aux % 32 == 0;
  for (int map = 0; map < tiling.out.maps; ++map) {
    maps.out[map] = box_of(out, map);
    if (maps.has_aux) maps.aux[map] = box_of(static_cast<const char*>(out) + aux, map);
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
