// Forward and dgrad, channel by channel. A chunk of a row is copied once (widened, zero past its ends, split by residue mod S),
// every phase runs over it with the register tiles of phase_gemm, and the phases are interleaved into the output. All of it
// stays in L1.

#include "cpu/conv/depthwise.hpp"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "cpu/conv/conv_element.hpp"
#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/phase_plan.hpp"
#include "cpu/conv/recompute_non_finite.hpp"
#include "cpu/conv/tiling.hpp"
#include "cpu/memory/scratch.hpp"
#include "cpu/threads.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kChunkOutputs = 4096;  // elements of a chunk's output row: 16 KB of f32, a third of L1

template <class E>
class DepthwiseGather {
  using T = Compute<E>;

 public:
  DepthwiseGather(const GatherShape& shape, const E* in, const E* w, const E* bias, E* out)
      : shape_(shape),
        gemm_(gemm_kernels<T>()),
        pack_(pack_kernels<E>()),
        panels_(make_panels(shape.M, gemm_.widest)),
        chunk_(chunk_positions(shape, gemm_.lanes)),
        layout_(tile_layout(shape, chunk_, gemm_.lanes)),
        in_(in),
        w_(w),
        bias_(bias),
        out_(out) {
    for (const auto& taps : layout_.tap_offset) {
      offsets_.emplace_back();
      for (std::int64_t c = 0; c < shape_.R; ++c)
        for (const std::int64_t offset : taps)
          offsets_.back().push_back(static_cast<std::int32_t>(c * layout_.channel_pitch + offset));
      offsets_.back().resize(offsets_.back().size() + kOffsetSlack);
    }
  }

  /// Whether all weights are finite.
  [[nodiscard]] bool run() const {
    const std::int64_t chunks = ceil_div(shape_.q_count, chunk_);
    const double operations = static_cast<double>(chunk_ * shape_.R * shape_.M * (shape_.K + shape_.out_stride));
    parallel_for(shape_.N * shape_.G * chunks, worthwhile_grain(operations), [&](std::int64_t begin, std::int64_t end) {
      Scratch<T> input(shape_.R * layout_.channel_pitch);
      Scratch<T> weights(shape_.R * shape_.K * panels_.front().height);
      Scratch<T> rows(panels_.front().height * shape_.out_stride * chunk_);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / chunks, first = i % chunks * chunk_;
        const std::int64_t count = std::min(chunk_, shape_.q_count - first);
        pack_input(row, first, count, input.data());
        for (const Panel& panel : panels_) {
          compute(row % shape_.G, panel, count, input.data(), weights.data(), rows.data());
          write(row, panel, first, count, rows.data());
        }
      }
    });
    return weights_finite_;
  }

 private:
  [[nodiscard]] static std::int64_t chunk_positions(const GatherShape& shape, std::int64_t lanes) {
    const std::int64_t positions = std::max<std::int64_t>(kChunkOutputs / std::max(shape.out_stride, shape.in_stride), lanes);
    return ceil_div(std::min(positions, shape.q_count), lanes) * lanes;
  }

  void pack_input(std::int64_t row, std::int64_t first, std::int64_t count, T* to) const {
    const std::int64_t padded = ceil_div(count, gemm_.lanes) * gemm_.lanes;
    for (std::int64_t c = 0; c < shape_.R; ++c)
      for (const Segment& s : layout_.segments)
        pack_.gather_row(in_ + (row * shape_.R + c) * shape_.in_length, shape_.in_length,
                         shape_.in_stride * (first + s.first) + s.residue, shape_.in_stride,
                         to + c * layout_.channel_pitch + s.base, s.span + padded);
  }

  // The few weights of one group are reordered for every chunk: there are too few to cache.
  void compute(std::int64_t g, const Panel& panel, std::int64_t count, const T* x, T* w, T* rows) const {
    T bias[std::size_t{1} << (kPanelKinds - 1)] = {};
    for (std::int64_t m = 0; bias_ != nullptr && m < panel.rows; ++m)
      bias[m] = static_cast<T>(bias_[g * shape_.M + panel.first + m]);
    const E* from = w_ + g * shape_.w_group + panel.first * shape_.w_row;
    const std::int64_t vectors = ceil_div(count, gemm_.lanes);
    for (std::size_t r = 0; r < shape_.phases.size(); ++r) {
      T* to = w;
      for (std::int64_t c = 0; c < shape_.R; ++c)
        for (const Tap& tap : shape_.phases[r])
          for (std::int64_t m = 0; m < panel.height; ++m)
            *to++ = m < panel.rows ? static_cast<T>(from[m * shape_.w_row + c * shape_.w_channel + tap.k]) : T{0};
      if (!pack_.all_finite(w, to - w)) weights_finite_ = false;
      for (std::int64_t v = 0; v < vectors;) {
        const int width = static_cast<int>(std::min<std::int64_t>(vectors - v, gemm_.widest[panel.kind]));
        gemm_.micro[panel.kind][width](
            w, x + v * gemm_.lanes, offsets_[r].data(), static_cast<std::int64_t>(offsets_[r].size()) - kOffsetSlack, bias,
            rows + static_cast<std::int64_t>(r) * chunk_ + v * gemm_.lanes, shape_.out_stride * chunk_);
        v += width;
      }
    }
  }

  void write(std::int64_t row, const Panel& panel, std::int64_t first, std::int64_t count, const T* rows) const {
    const std::int64_t start = shape_.out_stride * first;
    for (std::int64_t m = 0; m < panel.rows; ++m)
      pack_.interleave(rows + m * shape_.out_stride * chunk_, chunk_, shape_.out_stride, shape_.out_stride, count,
                       shape_.out_length - start, out_ + (row * shape_.M + panel.first + m) * shape_.out_length + start);
  }

  const GatherShape& shape_;
  const GemmKernels<T>& gemm_;
  const PackKernels<E>& pack_;
  std::vector<Panel> panels_;
  std::int64_t chunk_;  // positions q of one chunk
  TileLayout layout_;
  const E* in_;
  const E* w_;
  const E* bias_;
  E* out_;
  std::vector<std::vector<std::int32_t>> offsets_;  // (phases, R*taps + slack) within the packed chunk
  mutable std::atomic<bool> weights_finite_ = true;
};

}  // namespace

std::optional<std::string> depthwise_can_implement(const ConvProblem& problem, ConvDirection direction) {
  if (!problem.is_depthwise()) return concat("needs G == C_in > 1, got G=", problem.G, " C_in=", problem.C_in);
  constexpr std::int64_t kMost = 1 << 16;
  if (problem.channels_out_per_group() * problem.K > kMost)
    return concat("C_out/G * K = ", problem.channels_out_per_group() * problem.K, " is above ", kMost);
  if (direction == ConvDirection::forward && problem.S > kMost) return concat("S = ", problem.S, " is above ", kMost);
  return std::nullopt;
}

void depthwise_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                      void* out) {
  const GatherShape shape = gather_shape(problem, direction);
  if (shape.N == 0 || shape.q_count == 0) return;
  bool finite = true;
  with_element(problem, [&](auto element) {
    using E = decltype(element);
    finite = DepthwiseGather<E>(shape, static_cast<const E*>(in), static_cast<const E*>(w), static_cast<const E*>(bias),
                                static_cast<E*>(out))
                 .run();
  });
  if (!finite) recompute_at_ends(problem, direction, in, w, bias, out);
}

}  // namespace polyphase::cpu
