#pragma once
// The aux operands of kernel.cuh, stride 1: a residual and the result that gives a derivative. They are loaded into the
// staging, or added to what is staged.

#include <cstdint>

#include "cuda/conv/epilogue/light.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/tensor_core/pipeline/store_rows.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/opaque.cuh"
#include "cuda/ptx/prefetch.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace polyphase::cuda::tensor_core {

/// The aux elements `distance` bytes from kRows columns of a tile, in the order in which store_plain_rows() writes them from a
/// warp's staging. In 16 bits only for tiles with has_whole_sectors(), `distance` a multiple of 16.
template <class T, int kN, int kPitch, int kRows>
class AuxRows {
 public:
  __device__ __forceinline__ AuxRows(const TapGemm& gemm, const Tiling& tiling, std::int64_t row_of_sample, std::int64_t column,
                                     std::int64_t position, std::int64_t distance, const T* out)
      : range_(gemm, tiling, position + gemm.out_origin),
        row_length_(gemm.out_length),
        rows_(static_cast<int>(min(static_cast<std::int64_t>(kRows), gemm.columns - column))),
        from_(Epilogue::aux(out + (row_of_sample + column) * gemm.out_length + position + gemm.out_origin, distance)),
        by_vectors_(sizeof(T) == 2 || (tiling.has_whole_sectors() && distance % 16 == 0)) {}

  /// Prefetches its lines.
  __device__ __forceinline__ void prefetch(int lane) const {
    constexpr int kLine = 128 / static_cast<int>(sizeof(T)), kLines = kN / kLine + 1;
    ptx::opaque(lane);
#pragma unroll 1
    for (int i = lane; i < rows_ * kLines; i += 32) {
      const int at = min(i % kLines * kLine, kN - 1);
      if (is_inside(at)) ptx::prefetch_l2(from_ + i / kLines * row_length_ + at);
    }
  }
  /// Starts to load it into the staging, as one group of copies (async_copy.cuh).
  __device__ __forceinline__ void bring(const Staged<T>* staging, int lane) const {
    ptx::opaque(lane);
    if (by_vectors_)
      bring_units<kVector>(staging, lane);
    else if constexpr (sizeof(T) == 4)
      bring_units<1>(staging, lane);
    ptx::copy_commit();
  }
  /// Adds it to `scale` times the staged elements.
  __device__ __forceinline__ void add(float scale, Staged<T>* staging, int lane) const {
    ptx::opaque(lane);
    if (by_vectors_)
      add_units<kVector>(scale, staging, lane);
    else if constexpr (sizeof(T) == 4)
      add_units<1>(scale, staging, lane);
  }

 private:
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  /// Lanes take neighbouring units of kWidth elements. If a row has fewer than 32 units, a warp takes several rows.
  template <int kWidth>
  struct Units {
    static constexpr int kLanes = kN / kWidth < 32 ? kN / kWidth : 32;  // per row
    static constexpr int kEach = 32 / kLanes;                           // rows at a time
    static constexpr int kPieces = kN / kWidth / kLanes;                // per lane and row
    static constexpr int kFurther = kLanes * kWidth;                    // elements from one piece to the next
  };
  [[nodiscard]] __device__ __forceinline__ bool is_inside(int at) const { return at >= range_.begins && at < range_.ends; }

  /// Row after row, so that no addresses are kept.
  template <int kWidth>
  __device__ __forceinline__ void bring_units(const Staged<T>* staging, int lane) const {
    using U = Units<kWidth>;
    const int own = lane / U::kLanes, at = lane % U::kLanes * kWidth;
    const T* from = from_ + own * row_length_ + at;
    std::uint32_t to = ptx::shared_address(staging + own * kPitch + at);
#pragma unroll 1
    for (int row = own; row < rows_; row += U::kEach) {
#pragma unroll
      for (int i = 0; i < U::kPieces; ++i) {
        if (!is_inside(at + i * U::kFurther)) continue;
        const std::uint32_t place = to + static_cast<std::uint32_t>(i * U::kFurther * static_cast<int>(sizeof(T)));
        if constexpr (kWidth == kVector)
          ptx::copy_vector(place, from + i * U::kFurther);
        else
          ptx::copy_word(place, from + i * U::kFurther);
      }
      from += U::kEach * row_length_;
      to += static_cast<std::uint32_t>(U::kEach * kPitch * static_cast<int>(sizeof(T)));
    }
  }

  /// Several outstanding reads per lane: as many as there are registers for.
  template <int kWidth>
  __device__ __forceinline__ void add_units(float scale, Staged<T>* staging, int lane) const {
    using U = Units<kWidth>;
    struct alignas(kWidth * sizeof(T)) Unit {
      T of[kWidth];
    };
    constexpr int kItems = U::kPieces < 3 ? 3 : U::kPieces, kAtOnce = kItems / U::kPieces;  // rows
    const int own = lane / U::kLanes, at = lane % U::kLanes * kWidth;
    const T* from = from_ + own * row_length_ + at;
    staging += own * kPitch + at;
#pragma unroll 1
    for (int row = own; row < rows_; row += kAtOnce * U::kEach) {
      Unit others[kItems];
      const auto exists = [&](int i) {
        return row + i / U::kPieces * U::kEach < rows_ && is_inside(at + i % U::kPieces * U::kFurther);
      };
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        if (exists(i))
          others[i] =
              *reinterpret_cast<const Unit*>(from + i / U::kPieces * U::kEach * row_length_ + i % U::kPieces * U::kFurther);
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        auto* const place =
            reinterpret_cast<Unit*>(staging + i / U::kPieces * U::kEach * kPitch + i % U::kPieces * U::kFurther);
        Unit unit = *place;
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
          unit.of[j] = static_cast<T>(fmaf(scale, static_cast<float>(unit.of[j]), static_cast<float>(others[i].of[j])));
        if (exists(i)) *place = unit;
      }
      from += kAtOnce * U::kEach * row_length_;
      staging += kAtOnce * U::kEach * kPitch;
    }
  }

  RowRange range_;
  std::int64_t row_length_;
  int rows_;
  const T* from_;
  bool by_vectors_;
};

/// Writes these columns from the staging.
template <class T, int kN, int kPitch, int kRows>
__device__ __forceinline__ void store_unit_stride(const TapGemm& gemm, const Tiling& tiling, std::int64_t row_of_sample,
                                                  std::int64_t column, std::int64_t position, const Staged<T>* staging,
                                                  int lane, T* __restrict__ out) {
  ptx::opaque(lane);
  const int rows = static_cast<int>(min(static_cast<std::int64_t>(kRows), gemm.columns - column));
  if (rows <= 0) return;
  const std::int64_t t0 = position + gemm.out_origin;
  const RowRange range(gemm, tiling, t0);
  T* const to = out + (row_of_sample + column) * gemm.out_length + t0;
  store_plain_rows<T, kN, kPitch, kRows, true>(gemm, tiling, range, rows, staging, lane, to);
}

}  // namespace polyphase::cuda::tensor_core
