#pragma once
// The products of a convolution of a residual unit of f32.
//
// To the accuracy of tf32 there is one pass over the taps. To that of f32 there are three, over parts of source and weights,
// and the sums of the high parts move to a second set every 16 products of matrices: the tensor cores truncate what they add,
// and more of them would be less accurate than sums of f32 (docs/precision.md).

#include <cstdint>

#include "cuda/conv/tensor_core/residual_unit/f32/marked_number.cuh"
#include "cuda/conv/tensor_core/residual_unit/kernel.cuh"
#include "cuda/ptx/mbarrier.cuh"

namespace polyphase::cuda::tensor_core {

struct UnitTf32 {
  static constexpr ptx::Tensor kType = ptx::Tensor::tf32;
};

/// What the products of a thread block need, and how far they are.
template <class Shape>
struct UnitProducts {
  const UnitTiling& tiling;
  const UnitLayout<Shape>& layout;
  const UnitWeights<Shape>& weights;
  int warp, lane;
  UnitProgress at;

  /// sums += the products of stages [begin, end) of convolution `conv`. A second pass over its taps follows the first; the
  /// first begins `first_pass` units of 16 bytes after the operand.
  template <class Operand, class Sums>
  __device__ __forceinline__ void add(int conv, int begin, int end, std::uint32_t first_pass, Sums& sums) {
    const int count = stages(conv);
    const auto offset = [&](int stage) {
      const bool is_first = Shape::kPasses == 1 || stage < count;
      return stage_offset<Shape>(is_first ? stage : stage - count, tiling.step[conv], tiling.pitch) +
             (is_first ? first_pass : 0);
    };
    multiply_unit<Operand, Shape>(layout, operand(), tiling.pitch, begin, end, offset, warp, lane, weights, at, sums);
  }
  /// The stages of a pass over the taps.
  [[nodiscard]] __device__ __forceinline__ int stages(int conv) const { return tiling.taps[conv] * Shape::kParts; }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t operand() const {
    return layout.base + static_cast<std::uint32_t>(layout.kOperand);
  }
};

template <class Sums>
__device__ __forceinline__ void clear_sums(Sums& sums) {
#pragma unroll
  for (int i = 0; i < Sums::kSums; ++i) sums.at(i) = 0;
}

/// A second set of sums, to which those of the tensor cores move.
template <class Sums>
struct UnitTotals {
  float values[Sums::kSums];

  /// totals += sums*factor; the sums begin again.
  __device__ __forceinline__ void take(Sums& sums, float factor) {
#pragma unroll
    for (int i = 0; i < Sums::kSums; ++i) values[i] = fmaf(sums.at(i), factor, values[i]), sums.at(i) = 0;
  }
  __device__ __forceinline__ void give(Sums& sums) const {
#pragma unroll
    for (int i = 0; i < Sums::kSums; ++i) sums.at(i) = values[i];
  }
};

template <class Shape>
inline constexpr int kChainStages = 16 / Shape::kStageDepths;

/// sums = the products of convolution `conv`, of operands of f16.
template <class Shape, class Sums>
__device__ __forceinline__ void multiply_f16(UnitProducts<Shape>& products, int conv, Sums& sums) {
  const int stages = products.stages(conv);
  wait_for_whole(products.layout, products.at);
  clear_sums(sums);
  if constexpr (Shape::kPasses == 1) {
    products.template add<ScaledF16>(conv, 0, stages, 0, sums);
  } else {
    // The low parts are 2^11 times what they stand for: first low*high and high*low, then high*high.
    const auto low = static_cast<std::uint32_t>(UnitLayout<Shape>::operand_bytes(products.tiling) / 16);
    UnitTotals<Sums> totals{};
    int begin = 0, end = 2 * stages;
#pragma unroll 1
    for (bool is_high = false; begin < stages || !is_high; is_high = true) {
      products.template add<ScaledF16>(conv, begin, end, is_high ? 0 : low, sums);
      totals.take(sums, is_high ? 1.0F : 1 / kLowScale);
      begin = is_high ? end : 0;
      end = min(begin + kChainStages<Shape>, stages);
    }
    totals.give(sums);
  }
}

/// The same, of operands of tf32 (MarkedNumber), for all warps. has_infinity: whether one of the operand's numbers is infinite.
template <class Shape, class Sums>
__device__ __forceinline__ void multiply_marked(UnitProducts<Shape>& products, int conv, unsigned char* memory,
                                                bool has_infinity, Sums& sums) {
  const int stages = products.stages(conv);
  clear_sums(sums);
  if constexpr (Shape::kPasses == 1) {
    products.template add<UnitTf32>(conv, 0, stages, 0, sums);
  } else {
    const auto replace = [&](const auto& replaced) {
      ptx::named_barrier(1, 32 * Shape::kWarps);
      auto* const words = reinterpret_cast<float4*>(memory + products.layout.kOperand);
      const int count = UnitLayout<Shape>::operand_bytes(products.tiling) / 16;
      for (int i = products.warp * 32 + products.lane; i < count; i += 32 * Shape::kWarps) {
        const float4 word = words[i];
        words[i] = make_float4(replaced(word.x), replaced(word.y), replaced(word.z), replaced(word.w));
      }
      ptx::fence_async_shared();
      ptx::named_barrier(1, 32 * Shape::kWarps);
    };
    // high*high, high*low, and low*high. An infinity has met its weights in the first pass.
    UnitTotals<Sums> totals{};
#pragma unroll 1
    for (int pass = 0, begin = 0; pass < 3;) {
      if (begin == 0 && pass == 1 && has_infinity)
        replace([](float word) { return isinf(word) ? MarkedNumber<Shape>::of(0.0F) : word; });
      if (begin == 0 && pass == 2) replace(&MarkedNumber<Shape>::rest);
      const int end = min(begin + kChainStages<Shape>, stages);
      products.template add<UnitTf32>(conv, begin, end, 0, sums);
      totals.take(sums, 1.0F);
      begin = end < stages ? end : 0;
      if (begin == 0) ++pass;
    }
    totals.give(sums);
  }
}

}  // namespace polyphase::cuda::tensor_core
