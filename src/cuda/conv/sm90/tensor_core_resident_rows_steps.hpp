#pragma once
// How the kernel of tensor_core_resident_rows.cuh cuts a problem. Host arithmetic only.

#include <cstdint>

#include "cuda/conv/sm90/tensor_core_resident_steps.hpp"

namespace polyphase::cuda::tensor_core {

inline constexpr int kRowsOfStep = 16;
inline constexpr int kRowsBarrierBytes = 320;

/// Steps of 16 rows x all taps, whose source stays in rows; `stages` are those of a consumer.
struct RowSteps : StoredSteps {
  int pitch, stage_bytes;  // of a row and of a step in shared memory
  int span;                // elements of a row that a tile reads
  int turn;                // pairs of steps behind which the other consumer may begin its next tile
  bool reads_pairs;        // a row's elements 0, 2, ... of a tile are aligned as one number of twice the size
  bool stores_pairs;       // so are its outputs, and tiles do not overlap
};

/// What the cutting needs to know of a kernel and the arrays.
struct RowShape {
  int halves;  // of 64 positions
  int columns, parts;
  int element_bytes;                // of source and output
  int staging_bytes;                // of a consumer
  int source_address, out_address;  // modulo 16
};

/// Whether the source is read, and the output written, position by position: stride and dilation 1. 16-bit types also need rows
/// that begin at whole words and sectors.
[[nodiscard]] bool is_for_rows(const TapGemm& form, int element_bytes);

/// count == 0 where it does not fit.
[[nodiscard]] RowSteps make_row_steps(const TapGemm& form, const RowShape& shape, int sm_count, int shared_limit);

}  // namespace polyphase::cuda::tensor_core
