#pragma once
// The tensor maps of kernel.cuh. Host only except for the structure.

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// One map per class: every classes-th row of the source and of the output, over all samples and groups. Dimensions: numbers,
/// rows of the class, 1. For whole output rows: numbers of a line, rows, lines.
struct TmaMaps {
  CUtensorMap load[kTmaLoadMost], store[kTmaStoreMost];
  int load_offset[kTmaLoadMost], store_offset[kTmaStoreMost];  // of rows' first numbers: a map begins at a boundary before
  int store_numbers[kTmaStoreMost];  // numbers of a row that boxes store, the offset included: a store writes whole 16 bytes
};

/// The same for the aux operand, from `offset` numbers after a map's beginning on.
struct TmaAux {
  CUtensorMap load[kTmaStoreMost];
  int offset[kTmaStoreMost];
};
/// For a residual or the result that gives a derivative; if both, the latter is first.
struct TmaAuxes {
  TmaAux of[2];
};
struct TmaNoAux {};

/// Every `classes`-th row of an array laid out like the output, as it is stored.
[[nodiscard]] inline TensorMapOf tma_output_map(const TapGemm& gemm, const TmaTiling& tiling, const void* array, int own,
                                                std::uint64_t boundary) {
  TensorMapOf of = class_map_of({array, gemm.N * gemm.G * gemm.out_channels, gemm.out_length, sizeof(float)}, own,
                                1 << tiling.store_bits, boundary, kTmaWidth, tiling.columns);
  if (tiling.kind == TmaRows::whole) {
    of.samples = static_cast<std::uint64_t>(std::max<std::int64_t>(gemm.out_length / kTmaLine, 1));
    of.sample_bytes = kTmaLine * sizeof(float);
    of.numbers = of.box_numbers = kTmaLine;
    of.box_samples = kTmaPositions / kTmaLine;
    of.swizzled = true;
  }
  return of;
}

/// `aux`: at a multiple of 16 bytes from the output.
[[nodiscard]] inline TmaAux make_tma_aux(const TapGemm& gemm, const TmaTiling& tiling, const void* aux) {
  TmaAux maps{};
  for (int own = 0; own < 1 << tiling.store_bits; ++own) {
    const TensorMapOf of = tma_output_map(gemm, tiling, aux, own, 16);
    maps.load[own] = encode_tensor_map(of);
    maps.offset[own] = of.offset;
  }
  return maps;
}

[[nodiscard]] inline TmaMaps make_tma_maps(const TapGemm& gemm, const TmaTiling& tiling, const void* source, const void* out) {
  TmaMaps maps{};
  const int loads = 1 << tiling.load_bits, stores = 1 << tiling.store_bits;
  for (int own = 0; own < loads; ++own) {
    const TensorMapOf of = class_map_of({source, gemm.N * gemm.G * gemm.rows, gemm.source_length, sizeof(float)}, own, loads,
                                        16, tiling.raw_pitch, tiling.chunk_rows);
    maps.load[own] = encode_tensor_map(of);
    maps.load_offset[own] = of.offset;
  }
  for (int own = 0; own < stores; ++own) {
    TensorMapOf of = tma_output_map(gemm, tiling, out, own, 32);
    if (tiling.kind != TmaRows::whole) {
      maps.store_numbers[own] = static_cast<int>(of.numbers / 4 * 4);
      of.numbers = std::max<std::uint64_t>(of.numbers / 4 * 4, 4);
      maps.store_offset[own] = of.offset;
    }
    maps.store[own] = encode_tensor_map(of);
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
