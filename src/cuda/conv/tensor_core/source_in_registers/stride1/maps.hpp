#pragma once
// The tensor maps of kernel.cuh. Host only except for the structures.

#include <cuda.h>

#include <cstdint>

#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/tensor_map.hpp"
#include "cuda/conv/tensor_core/source_in_registers/stride1/tiling.hpp"

namespace polyphase::cuda::tensor_core {

/// One map per class: every classes-th row of an array, over all samples and groups. Dimensions: numbers, rows of the class, 1.
template <int kClassesMost>
struct ClassMaps {
  CUtensorMap map[kClassesMost];
  int offset[kClassesMost];  // of the rows' first number: a map begins at the boundary before it
};
using Stride1Maps = ClassMaps<kStride1ClassesMost>;  // of the source, from multiples of 16 bytes
/// For the output, from sectors: boxes of a whole tile, and of a tile at the begin of a run.
struct StoreMaps {
  CUtensorMap whole[kStoreClassesMost], begin[kStoreClassesMost];
  int offset[kStoreClassesMost];
};

/// The first `classes` of them: `rows` rows of `length` numbers; boxes of `width` numbers and of those of `box_rows` rows that
/// are in one class.
template <class Maps>
[[nodiscard]] Maps make_class_maps(const void* array, std::int64_t rows, std::int64_t length, int bytes, int classes,
                                   std::uint64_t boundary, int width, int box_rows) {
  Maps maps{};
  for (int c = 0; c < classes; ++c) {
    const TensorMapOf of = class_map_of({array, rows, length, bytes}, c, classes, boundary, width, box_rows);
    maps.map[c] = encode_tensor_map(of);
    maps.offset[c] = of.offset;
  }
  return maps;
}

[[nodiscard]] inline Stride1Maps make_stride1_maps(const TapGemm& gemm, const Stride1Tiling& tiling, const void* source,
                                                   int bytes) {
  return make_class_maps<Stride1Maps>(source, gemm.N * gemm.G * gemm.rows, gemm.source_length, bytes, tiling.classes, 16,
                                      tiling.pitch / bytes, kStride1RowsOfStep);
}

[[nodiscard]] inline StoreMaps make_store_maps(const TapGemm& gemm, const Stride1Tiling& tiling, const void* out, int bytes) {
  using Maps = ClassMaps<kStoreClassesMost>;
  const std::int64_t rows = gemm.N * gemm.G * gemm.out_channels;
  const Maps whole =
      make_class_maps<Maps>(out, rows, gemm.out_length, bytes, tiling.store_classes, 32, kCarryPositions, tiling.store_columns);
  const Maps begin = make_class_maps<Maps>(out, rows, gemm.out_length, bytes, tiling.store_classes, 32,
                                           kCarryPositions - tiling.aligned, tiling.store_columns);
  StoreMaps maps{};
  for (int c = 0; c < kStoreClassesMost; ++c) {
    maps.whole[c] = whole.map[c];
    maps.begin[c] = begin.map[c];
    maps.offset[c] = whole.offset[c];
  }
  return maps;
}

}  // namespace polyphase::cuda::tensor_core
