#pragma once
// The consumers of the weight gradient by rows (rows.cuh): fragments of the rows from a step's raw rows, and their products
// with the tile of the columns.

#include <cstdint>
#include <type_traits>

#include "cuda/conv/tensor_core/wgrad/rows.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/wgmma_registers.cuh"

namespace polyphase::cuda::tensor_core {

/// Rows of a block of 8 in lane order, so that simultaneous reads of the lanes are in different banks.
__device__ __forceinline__ int row_of_lane(int i) { return (i & 1) << 2 | (i & 2) | i >> 2; }

/// The place of a row of gemm_m in a step's raw rows.
struct WgradRow {
  std::uint32_t byte;  // in box 0, including what the swizzle XORs into the bytes of the row
  int first;           // number of the window at position 0
  int before;          // numbers before the window
};

/// Row `row` of gemm_m in the block's tile; a row that does not exist is replaced by another one. `begin`: of the window.
template <class T>
__device__ __forceinline__ WgradRow raw_row(const WgradSide& side, const WgradClasses& classes, std::int64_t begin,
                                            int first_block, int own_block, int row) {
  const int block = first_block + min(own_block, min(side.tile, side.blocks - first_block) - 1);
  const int first = first_block / side.planes * 8;
  const int channel = min(block / side.planes * 8 + row, side.channels - 1) - first;
  const int in_class = channel / side.raw.classes;
  return {static_cast<std::uint32_t>(channel % side.raw.classes * side.raw.class_bytes +
                                     in_class * side.raw.width * static_cast<int>(sizeof(T)) +
                                     (side.raw.is_swizzled ? in_class % 8 * 16 : 0)),
          static_cast<int>(block % side.planes * side.plane_step),
          numbers_before<T>(classes, channel % side.raw.classes, begin)};
}

/// The numbers of a consumer thread's fragments: of two rows, or of one for load_matrices. A fragment is 16 positions of the
/// step: kCount of them from kFirst.
template <class Operand>
struct WgradRows {
  using T = typename Operand::Source;
  static constexpr int kBytes = sizeof(T), kParts = Operand::kParts;
  const unsigned char* raw;  // of a stage
  WgradRow row[2];           // lane / 4 of a block of 8, and of the next
  WgradRow named;            // the row that this lane addresses for load_matrices
  const WgradSide& side;
  int step, box_bytes;
  bool has_pairs;    // neighbouring numbers in one box; two form a word if the first is even
  bool has_seconds;  // every second number, 64 of which are in a box
  int position;      // the first of this thread

  /// The number of the window that is the first of two at `position` of row i % 2.
  __device__ __forceinline__ int number(int fragment, int i) const {
    return (position + fragment * 16 + i / 2 * 8) * step + row[i % 2].first;
  }

  /// Fragments from pairs of numbers at neighbouring positions: load(fragment, i) for number(fragment, i) returns two 16-bit
  /// numbers in a word. Numbers of the window before `hidden` do not belong to the row.
  template <int kFirst, int kCount, class Load>
  __device__ __forceinline__ void take(float scale, int hidden, std::uint32_t (&parts)[kCount][kParts][4], WgradRange& range,
                                       Load load) const {
    if constexpr (kBytes == 4) {
      // All loads first, then one test for the rare case.
      std::uint32_t words[kCount][8];
#pragma unroll
      for (int k = 0; k < kCount; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint2 pair = load(kFirst + k, i);
          words[k][2 * i] = pair.x;
          words[k][2 * i + 1] = pair.y;
        }
      if (hidden > 0) {
#pragma unroll
        for (int k = 0; k < kCount; ++k)
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (number(kFirst + k, i / 2) + i % 2 * step < hidden) words[k][i] = 0;
      }
      __half2 least = __float2half2_rn(1.0F);
#pragma unroll
      for (int k = 0; k < kCount; ++k) WgradSplit<Operand>::split(words[k], scale, parts[k], range, least);
      if (WgradSplit<Operand>::is_small(least)) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) WgradSplit<Operand>::count_small(words[k], scale, range);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) parts[k][0][i] = load(kFirst + k, i);
        if (hidden > 0) hide(kFirst + k, hidden, parts[k][0]);
      }
    }
  }

  __device__ __forceinline__ void hide(int fragment, int hidden, std::uint32_t (&numbers)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = number(fragment, i);
      numbers[i] &= first >= hidden ? 0xffffffffU : first + step >= hidden ? 0xffff0000U : 0U;
    }
  }

  using Pair = std::conditional_t<kBytes == 4, uint2, std::uint32_t>;
  __device__ static __forceinline__ Pair pair(std::uint32_t a, std::uint32_t b) {
    if constexpr (kBytes == 4)
      return make_uint2(a, b);
    else
      return __byte_perm(a, b, kLowerHalves);
  }

  /// Neighbouring numbers, swizzled.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_dense(float scale, int hidden, std::uint32_t (&parts)[kCount][kParts][4],
                                             WgradRange& range) const {
    if constexpr (kBytes == 2) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      const std::uint32_t from = ptx::shared_address(raw) + static_cast<std::uint32_t>((position >> 6) * box_bytes);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const auto in_row = static_cast<std::uint32_t>((kFirst + k) * 32 + lane / 16 * 16);
        ptx::load_matrices(parts[k][0], from + (in_row ^ named.byte));
        if (hidden > 0) hide(kFirst + k, hidden, parts[k][0]);
      }
    } else {
      // Boxes begin at multiples of 128 bytes: fragments of a row, like the swizzle, change only the low bits of an address.
      const auto own = static_cast<std::uint32_t>((position & 31) * kBytes);
      const std::uint32_t from = ptx::shared_address(raw) + static_cast<std::uint32_t>((position >> 5) * box_bytes);
      const std::uint32_t first[2] = {from + (own ^ row[0].byte), from + (own ^ row[1].byte)};
      take<kFirst>(scale, hidden, parts, range, [&](int fragment, int i) {
        const auto in_row = static_cast<std::uint32_t>(fragment % 2 * 64 + i / 2 * 32);
        return ptx::load_shared_pair((first[i % 2] ^ in_row) + static_cast<std::uint32_t>(fragment / 2 * box_bytes));
      });
    }
  }

  /// Neighbouring numbers in one box; two form a word if the first is even.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_pairs(float scale, int hidden, std::uint32_t (&parts)[kCount][kParts][4],
                                             WgradRange& range) const {
    const unsigned char* const from[2] = {raw + row[0].byte + (position + row[0].before) * kBytes,
                                          raw + row[1].byte + (position + row[1].before) * kBytes};
    take<kFirst>(scale, hidden, parts, range, [&](int fragment, int i) {
      return *reinterpret_cast<const Pair*>(from[i % 2] + (fragment * 16 + i / 2 * 8) * kBytes);
    });
  }

  /// Every second number; those of this warpgroup are in one box.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_seconds(float scale, int hidden, std::uint32_t (&parts)[kCount][kParts][4],
                                               WgradRange& range) const {
    const auto first_of = [&](const WgradRow& at) {
      return raw + at.byte + (position >> 6) * box_bytes + ((position & 63) * 2 + at.first + at.before) * kBytes;
    };
    const unsigned char* const from[2] = {first_of(row[0]), first_of(row[1])};
    take<kFirst>(scale, hidden, parts, range, [&](int fragment, int i) {
      const unsigned char* at = from[i % 2] + (fragment * 16 + i / 2 * 8) * 2 * kBytes;
      return pair(raw_word<T>(at), raw_word<T>(at + 2 * kBytes));
    });
  }

  /// Any distance between the numbers.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void load_sparse(float scale, int hidden, std::uint32_t (&parts)[kCount][kParts][4],
                                              WgradRange& range) const {
    int gap = box_bytes - side.raw.span * kBytes;  // from box to box, without what is in both
    ptx::opaque(gap);
    const unsigned char* const from[2] = {raw + row[0].byte + row[0].before * kBytes,
                                          raw + row[1].byte + row[1].before * kBytes};
    const auto find = [&](int number, int i) {
      return raw_word<T>(from[i % 2] + number * kBytes + (number >> side.raw.span_log2) * gap);
    };
    take<kFirst>(scale, hidden, parts, range, [&](int fragment, int i) {
      const int first = number(fragment, i);
      return pair(find(first, i), find(first + step, i));
    });
  }

  /// `kDense`: the numbers are known to be neighbours, swizzled.
  template <bool kDense, int kFirst, int kCount>
  __device__ __forceinline__ void load(float scale, int hidden, std::uint32_t (&parts)[kCount][kParts][4],
                                       WgradRange& range) const {
    if (kDense || side.raw.is_swizzled)
      load_dense<kFirst>(scale, kDense ? 0 : hidden, parts, range);
    else if (has_pairs)
      load_pairs<kFirst>(scale, hidden, parts, range);
    else if (has_seconds)
      load_seconds<kFirst>(scale, hidden, parts, range);
    else
      load_sparse<kFirst>(scale, hidden, parts, range);
  }
};

/// Where a consumer's columns are in a stage.
struct WgradOperands {
  std::uint64_t columns;         // descriptor, of the high halves
  int columns_part, shift_step;  // in units of 16 bytes; from the high halves to the low ones, either way
  /// Shared addresses are short: adding to the lower half carries nowhere.
  __device__ __forceinline__ std::uint64_t column(int part, int shift, int k) const {
    const auto low =
        static_cast<std::uint32_t>(columns) + static_cast<std::uint32_t>(part * columns_part + shift * shift_step + k * 16);
    return (columns >> 32 << 32) | low;
  }
};

/// A consumer thread's fragments of a step.
template <class Operand>
using WgradStep = std::uint32_t[kChunk / 16][Operand::kParts][4];

/// total += rows * columns for every shift, over one step, of split numbers, with one set of sums. `rows_read()` once the
/// fragments are in registers, `release()` once the tensor cores are done with the step.
template <class Operand, int kN, int kShifts, class RowsRead, class Release>
__device__ __forceinline__ void multiply_fragments(const WgradOperands& at, const WgradStep<Operand>& rows, RowsRead rows_read,
                                                   Release release, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  constexpr int kSteps = kChunk / 16;
  float sums[kN / 2];
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) {
    ptx::fence_registers(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      Mma::multiply(sums, rows[k][1], at.column(0, shift, k), k != 0);
      Mma::multiply(sums, rows[k][0], at.column(1, shift, k), true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::fence_registers(sums);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) sums[i] *= 1.0F / kLowScale;
    ptx::fence_registers(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) Mma::multiply(sums, rows[k][0], at.column(0, shift, k), true);
    ptx::wgmma_commit();
    if (shift == 0) rows_read();
    ptx::wgmma_wait<0>();
    if (shift == kShifts - 1) release();
    ptx::fence_registers(sums);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total[shift][i] += sums[i];
  }
}

/// total += rows * columns for every shift, over one step. `rows_read()` once the fragments are in registers, `release()` once
/// the tensor cores are done with the step, `on_way()` once half of the products are on their way. The mixed products and the
/// others have sums of their own, so that either is added up while the tensor cores are at the other.
template <class Operand, int kN, int kShifts, class RowsRead, class Release, class OnWay>
__device__ __forceinline__ void multiply_rows_split(const WgradOperands& at, const WgradStep<Operand>& rows, RowsRead rows_read,
                                                    Release release, OnWay on_way, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  constexpr int kSteps = kChunk / 16;
  float mixed[kN / 2], sums[kN / 2];
  const auto multiply_mixed = [&](int shift) {
    ptx::fence_registers(mixed);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      Mma::multiply(mixed, rows[k][1], at.column(0, shift, k), k != 0);
      Mma::multiply(mixed, rows[k][0], at.column(1, shift, k), true);
    }
    ptx::wgmma_commit();
  };
  const auto multiply_high = [&](int shift) {
    ptx::fence_registers(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) Mma::multiply(sums, rows[k][0], at.column(0, shift, k), k != 0);
    ptx::wgmma_commit();
  };
  multiply_mixed(0);
  multiply_high(0);
  if constexpr (kShifts == 1) on_way();
  rows_read();
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) {
    const bool is_last = shift + 1 == kShifts;
    ptx::wgmma_wait<1>();
    ptx::fence_registers(mixed);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total[shift][i] = fmaf(mixed[i], 1.0F / kLowScale, total[shift][i]);
    if (is_last) {
      ptx::wgmma_wait<0>();
      release();
    } else {
      multiply_mixed(shift + 1);
      if (shift + 1 == kShifts / 2) on_way();
      ptx::wgmma_wait<1>();
    }
    ptx::fence_registers(sums);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total[shift][i] += sums[i];
    if (!is_last) multiply_high(shift + 1);
  }
}

/// The same for few columns: high halves are multiplied by both halves of the columns together, which are neighbours, and the
/// sums of a shift are added during the products of the next. A thread's first kN / 2 of a shift belong to the mixed products.
/// Calls `on_way()` when all products are issued.
template <class Operand, int kN, int kShifts, class RowsRead, class Release, class OnWay>
__device__ __forceinline__ void multiply_rows_together(const WgradOperands& at, const WgradStep<Operand>& rows,
                                                       RowsRead rows_read, Release release, OnWay on_way,
                                                       float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  using Both = ptx::WgmmaFromRegisters<Operand::kType, 2 * kN>;
  constexpr int kSteps = kChunk / 16, kSets = 2;
  static_assert(kShifts >= kSets);
  float sums[kSets][kN];
  const auto multiply = [&](int shift) {
    float(&own)[kN] = sums[shift % kSets];
    ptx::fence_registers(own);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) Both::multiply(own, rows[k][0], at.column(1, shift, k), k != 0);
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      Mma::multiply(reinterpret_cast<float(&)[kN / 2]>(own[0]), rows[k][1], at.column(0, shift, k), true);
    ptx::wgmma_commit();
  };
#pragma unroll
  for (int shift = 0; shift < kSets; ++shift) multiply(shift);
  rows_read();
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) {
    const float(&own)[kN] = sums[shift % kSets];
    if (shift + 1 < kShifts) {
      ptx::wgmma_wait<1>();
    } else {
      ptx::wgmma_wait<0>();
      release();
    }
    ptx::fence_registers(sums[shift % kSets]);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total[shift][i] = fmaf(own[i], 1.0F / kLowScale, total[shift][i] + own[kN / 2 + i]);
    if (shift + kSets < kShifts) multiply(shift + kSets);
    if (shift + kSets + 1 == kShifts) on_way();
  }
}

/// The same for bf16 parts, with one set of sums: the smallest products are added first, and those below the smallest part of
/// a number are left out.
template <class Operand, int kN, int kShifts, class RowsRead, class Release, class OnWay>
__device__ __forceinline__ void multiply_rows_wide(const WgradOperands& at, const WgradStep<Operand>& rows, RowsRead rows_read,
                                                   Release release, OnWay on_way, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
  constexpr int kSteps = kChunk / 16, kSmallest = Operand::kParts - 1;
  float sums[kN / 2];
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) {
    ptx::fence_registers(sums);
    ptx::wgmma_fence();
#pragma unroll
    for (int both = kSmallest; both >= 0; --both)
#pragma unroll
      for (int part = 0; part <= both; ++part)
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
          Mma::multiply(sums, rows[k][part], at.column(both - part, shift, k), both < kSmallest || part > 0 || k > 0);
    ptx::wgmma_commit();
    if (shift == 0) rows_read();
    if (shift == kShifts / 2) on_way();
    ptx::wgmma_wait<0>();
    if (shift + 1 == kShifts) release();
    ptx::fence_registers(sums);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) total[shift][i] += sums[i];
  }
}

/// The same without splitting, for some of a step's positions from `kFirst` on: the sums stay in the tensor cores, which
/// restart them unless `go_on`. Waits for them, then calls `done()`.
template <class Operand, int kN, int kShifts, int kFirst, int kCount, class Done>
__device__ __forceinline__ void multiply_rows_once(const WgradOperands& at, const std::uint32_t (&rows)[kCount][1][4],
                                                   bool go_on, Done done, float (&total)[kShifts][kN / 2]) {
  using Mma = ptx::WgmmaFromRegisters<Operand::kType, kN>;
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) ptx::fence_registers(total[shift]);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kCount; ++k)
#pragma unroll
    for (int shift = 0; shift < kShifts; ++shift)
      Mma::multiply(total[shift], rows[k][0], at.column(0, shift, kFirst + k), k != 0 || go_on);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  done();
#pragma unroll
  for (int shift = 0; shift < kShifts; ++shift) ptx::fence_registers(total[shift]);
}

/// The rest of a step from position kFirst on, kCount fragments at a time; the first of them are loaded.
template <class Operand, int kN, int kShifts, bool kDense, int kCount, int kFirst = 0, class Done>
__device__ __forceinline__ void multiply_rows_on(const WgradRows<Operand>& rows, const WgradOperands& at, float scale,
                                                 int hidden, bool go_on, std::uint32_t (&parts)[kCount][1][4], Done done,
                                                 WgradRange& range, float (&total)[kShifts][kN / 2]) {
  if constexpr (kFirst + kCount == kChunk / 16) {
    multiply_rows_once<Operand, kN, kShifts, kFirst>(at, parts, go_on, done, total);
  } else {
    multiply_rows_once<Operand, kN, kShifts, kFirst>(
        at, parts, go_on, [] {}, total);
    rows.template load<kDense, kFirst + kCount>(scale, hidden, parts, range);
    multiply_rows_on<Operand, kN, kShifts, kDense, kCount, kFirst + kCount>(rows, at, scale, hidden, true, parts, done, range,
                                                                            total);
  }
}

}  // namespace polyphase::cuda::tensor_core
