#pragma once
// Transposition of 8 x 8 floats in registers, for the ISA sources (cpu/isa_target.hpp).

#include "cpu/isa_target.hpp"

namespace polyphase::cpu::POLYPHASE_ISA {

typedef float Float8 __attribute__((vector_size(32)));

/// Turns four rows a b c d into four vectors; vector h holds column h of the lower halves and column h + 4 of the upper ones.
POLYPHASE_INLINE void transpose_four(const Float8* row, Float8* to) {
  const Float8 ab_low = __builtin_shufflevector(row[0], row[1], 0, 8, 1, 9, 4, 12, 5, 13);
  const Float8 ab_high = __builtin_shufflevector(row[0], row[1], 2, 10, 3, 11, 6, 14, 7, 15);
  const Float8 cd_low = __builtin_shufflevector(row[2], row[3], 0, 8, 1, 9, 4, 12, 5, 13);
  const Float8 cd_high = __builtin_shufflevector(row[2], row[3], 2, 10, 3, 11, 6, 14, 7, 15);
  to[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 8, 9, 4, 5, 12, 13);
  to[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 10, 11, 6, 7, 14, 15);
  to[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 8, 9, 4, 5, 12, 13);
  to[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 10, 11, 6, 7, 14, 15);
}

/// columns[j] = element j of each row.
POLYPHASE_INLINE void transpose_eight(const Float8 (&rows)[8], Float8 (&columns)[8]) {
  Float8 half[8];
  transpose_four(rows, half);
  transpose_four(rows + 4, half + 4);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    columns[j] = __builtin_shufflevector(half[j], half[4 + j], 0, 1, 2, 3, 8, 9, 10, 11);
    columns[4 + j] = __builtin_shufflevector(half[j], half[4 + j], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace polyphase::cpu::POLYPHASE_ISA
