#pragma once
// The tensor maps of kernel.cuh. Host only.

#include <cstdint>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma_16bit/layout.cuh"
#include "cuda/conv/tensor_core/wgrad/maps.hpp"

namespace polyphase::cuda::tensor_core {

/// Of the 16-bit array at `array`, rows of `length` numbers, `count` in all, of which a box has `box_rows`.
[[nodiscard]] inline CUtensorMap turned_map(const TurnedRows& rows, const void* array, std::int64_t count, std::int64_t length,
                                            int map, std::uint64_t boundary, std::int64_t numbers, int unit, int box_numbers,
                                            int box_rows) {
  const std::uint64_t first =
      reinterpret_cast<std::uint64_t>(array) + 2 * static_cast<std::uint64_t>(map * rows.group * length);
  WgradMapOf of{};
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
  return encode_map(of);
}

/// Bytes of a number of the source's map: words where rows are whole ones.
[[nodiscard]] inline int turned_unit(const TapGemm& form, const TurnedSteps& steps) {
  return form.source_length % 2 == 0 && steps.source_offset % 2 == 0 ? 4 : 2;
}

/// `beside`: bytes from the output to what lies beside it; 0: nothing.
[[nodiscard]] inline TurnedMaps make_turned_maps(const TapGemm& form, const TurnedSteps& steps, const void* source, void* out,
                                                 std::int64_t beside = 0) {
  TurnedMaps maps{};
  const TurnedRows& in = steps.source;
  maps.source = turned_map(in, source, form.N * form.rows, form.source_length, 0, 16,
                           form.source_length + steps.source_offset + (in.group - 1) * in.skew, turned_unit(form, steps),
                           steps.pitch, steps.rows);
  // No box meets a row's end.
  const auto box_of = [&](const void* array, int map) {
    return turned_map(steps.out, array, form.N * form.columns, form.out_length, map, 32, form.out_length + 64, 4, steps.window,
                      steps.columns);
  };
  maps.has_beside = beside != 0 && beside % 32 == 0;
  for (int map = 0; map < steps.out.maps; ++map) {
    maps.out[map] = box_of(out, map);
    if (maps.has_beside) maps.beside[map] = box_of(static_cast<const char*>(out) + beside, map);
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
