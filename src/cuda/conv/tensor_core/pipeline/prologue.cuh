#pragma once
// What precedes the product in kernels that recompute their own suspect sums: the packed weights, which are cached with their
// tensor, and for scaled operands a sample of the source. The product begins during the sampling.

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "conv/algorithm.hpp"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/tensor_core/operand/convert_tensor.cuh"
#include "cuda/conv/tensor_core/pipeline/dynamic_scheduler.cuh"
#include "cuda/conv/tensor_core/pipeline/launch.hpp"
#include "cuda/conv/tensor_core/pipeline/pack_weights.cuh"
#include "cuda/kernel/dependent_launch.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {

/// `to` = a WeightHeader and the weights as operands of `columns` columns a tile, on `stream`. Nothing reads the header of
/// operands that are not scaled.
template <class Operand>
void pack_weights(const ConvProblem& problem, ConvDirection direction, const Tiling& tiling, int columns, const void* w,
                  void* to, cudaStream_t stream) {
  auto* weight_header = static_cast<WeightHeader*>(to);
  const auto* weights = static_cast<const typename Operand::Source*>(w);
  if constexpr (Operand::kScaled) begin_weight_words<Operand>(problem, weights, &weight_header->largest, stream);
  const std::int64_t vectors = tiling.weight_tiles * tiling.count * (tiling.weight_bytes / 16 / Operand::kParts);
  require<NotImplemented>(vectors < std::int64_t{1} << 32, "conv tensor_core: expected less than 64 GiB of packed weights");
  const auto grid = static_cast<unsigned>(std::min<std::int64_t>((vectors + kPackThreads - 1) / kPackThreads, 4096));
  pack_kernel<Operand><<<grid, kPackThreads, 0, stream>>>(make_tap_gemm(problem, direction), tiling, problem, columns,
                                                          direction == ConvDirection::forward, vectors, weights,
                                                          static_cast<unsigned char*>(to) + kWeightHeaderBytes, weight_header);
  check_launch("conv tensor_core: pack weights");
}

/// The result of pack_weights, renewed only after the weights were written.
template <class Operand>
std::shared_ptr<const Buffer> cached_weights(const Gather& call, const Tiling& tiling, int columns) {
  constexpr std::int64_t kCachedPacking = -4;  // not a ConvDirection, which the preconverted kernel's keys have here
  const ConvProblem& problem = call.problem;
  const PackingKey key{static_cast<std::int64_t>(Algorithm::tensor_core),
                       kCachedPacking,
                       static_cast<std::int64_t>(call.direction),
                       static_cast<std::int64_t>(problem.dtype),
                       Operand::kParts,
                       Operand::kVector,
                       problem.C_in,
                       problem.C_out,
                       problem.G,
                       problem.K,
                       problem.S,
                       problem.D,
                       columns,
                       tiling.rows,
                       tiling.planes,
                       tiling.taps,
                       tiling.count,
                       tiling.has_parts_together ? 1 : 0};
  const auto bytes = static_cast<std::size_t>(kWeightHeaderBytes + tiling.weight_tiles * tiling.count * tiling.weight_bytes);
  return call.weights.packed(
      key, bytes, call.device, call.stream,
      [problem, direction = call.direction, tiling, columns](const void* w, void* to, cudaStream_t stream) {
        pack_weights<Operand>(problem, direction, tiling, columns, w, to, stream);
      });
}

/// Global memory of the dynamic scheduler (DynamicOrder): counters, and for scaled operands the lists of suspect tiles. Nothing
/// for the static scheduler.
template <class Operand>
class DynamicMemory {
 public:
  DynamicMemory(const Tiling& tiling, bool is_dynamic, const Gather& call)
      : counters_(is_dynamic ? tiling.weight_tiles : 0),
        memory_(static_cast<std::size_t>(Operand::kScaled && is_dynamic ? DynamicOrder::words(tiling) : counters_) *
                    sizeof(std::uint32_t),
                call.device) {}
  [[nodiscard]] std::uint32_t* words() const { return counters_ != 0 ? memory_.as<std::uint32_t>() : nullptr; }
  [[nodiscard]] std::span<std::uint32_t> counters() const { return {words(), static_cast<std::size_t>(counters_)}; }

 private:
  std::int64_t counters_;
  Buffer memory_;
};

/// Samples a source on the call's stream; for operands that are not scaled, only writes the zeros.
template <class Operand>
class Sampled {
 public:
  /// `zeros` and `marks` are zeros when the kernel has seen the header; without a scale there are no marks.
  explicit Sampled(const Gather& call, std::span<std::uint32_t> zeros, const Marks& marks)
      : call_(call),
        header_(Operand::kScaled ? sizeof(OperandHeader) : 0, call.device),
        is_behind_(Operand::kScaled || !zeros.empty()) {
    if constexpr (Operand::kScaled) {
      sample_source(call.gemm, static_cast<const float*>(call.source), header_.template as<OperandHeader>(), call.stream, zeros,
                    marks);
    } else if (!zeros.empty()) {
      write_zeros(zeros.data(), static_cast<std::int64_t>(zeros.size()), call.stream);
    }
  }

  /// Launches kernel(arguments...) during the sampling: it calls wait_for_grid_before() before it reads header(). Its other
  /// inputs are ready.
  template <class... Parameters, class... Arguments>
  void launch(void (*kernel)(Parameters...), unsigned grid, unsigned block, int shared, Arguments&&... arguments) const {
    allow_shared_memory(kernel, shared);
    const auto bytes = static_cast<std::size_t>(shared);
    if (is_behind_)
      launch_behind(kernel, grid, block, bytes, call_.stream, std::forward<Arguments>(arguments)...);
    else
      kernel<<<grid, block, bytes, call_.stream>>>(std::forward<Arguments>(arguments)...);
  }

  [[nodiscard]] const OperandHeader* header() const {
    return Operand::kScaled ? header_.template as<OperandHeader>() : nullptr;
  }

 private:
  const Gather& call_;
  Buffer header_;
  bool is_behind_;
};

}  // namespace polyphase::cuda::tensor_core
