#pragma once
// The parts of the loops in cpu/conv/phase_gemm.cpp: packing weights and input, one register tile of one panel, and writing it
// out. Internal to cpu/.

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/phase_plan.hpp"
#include "cpu/conv/tiling.hpp"

namespace polyphase::cpu {

/// The steps of one gather on elements E. Sizes are in elements of Compute<E>.
template <class E>
class GatherSteps {
 public:
  using T = Compute<E>;
  static constexpr std::int64_t kPhasesAtOnce = 16;  ///< phases whose results are kept until they are interleaved

  GatherSteps(const GatherShape& gather, const E* in, const E* w, const E* bias, E* out)
      : shape(gather),
        gemm_(gemm_kernels<T>()),
        pack_(pack_kernels<E>()),
        panels_(make_panels(gather.M, gemm_.widest)),
        widest_(gemm_.widest[panels_.front().kind]),
        tiles_(make_tiles(gather.q_first, gather.q_count - gather.q_first, widest_, gemm_.lanes)),
        layout_(tile_layout(gather, std::int64_t{widest_} * gemm_.lanes, gemm_.lanes)),
        in_(in),
        w_(w),
        bias_(bias),
        out_(out) {
    place_taps();
  }

  const GatherShape& shape;

  [[nodiscard]] std::int64_t tiles() const { return static_cast<std::int64_t>(tiles_.size()); }    ///< per row
  [[nodiscard]] std::int64_t panels() const { return static_cast<std::int64_t>(panels_.size()); }  ///< per group
  [[nodiscard]] std::int64_t channel_pitch() const { return layout_.channel_pitch; }
  [[nodiscard]] std::int64_t tile_size() const { return shape.R * layout_.channel_pitch; }
  /// Packed weights of one panel and one channel.
  [[nodiscard]] std::int64_t channel_weights() const { return shape.K * panels_.front().height; }
  [[nodiscard]] std::int64_t panel_size() const { return shape.R * channel_weights(); }
  /// Results of one panel and tile, for at most kPhasesAtOnce phases.
  [[nodiscard]] std::int64_t result_size() const {
    return panels_.front().height * std::min(shape.out_stride, kPhasesAtOnce) * result_pitch();
  }
  /// Operations of one tile for all panels, including packing.
  [[nodiscard]] double operations_per_tile() const {
    return 2.0 * static_cast<double>(shape.M * shape.R * shape.K * result_pitch()) + static_cast<double>(tile_size());
  }

  /// The weights of channels [first, last) of a panel: per phase, in the order (channel, tap), `height` neighbouring rows.
  void pack_panel(std::int64_t g, std::int64_t p, std::int64_t first, std::int64_t last, T* to) const {
    const Panel& panel = panels_[static_cast<std::size_t>(p)];
    const E* from = w_ + g * shape.w_group + panel.first * shape.w_row + first * shape.w_channel;
    if (shape.phases.size() == 1 && shape.w_channel == shape.K)  // columns (channel, tap) are already in order
      pack_.transpose(from, shape.w_row, panel.rows, panel.height, (last - first) * shape.K, nullptr, to, panel.height);
    else
      pack_by_phase(panel, from, last - first, to);
    if (!pack_.all_finite(to, (last - first) * shape.K * panel.height)) weights_finite_ = false;
  }
  /// Whether every weight packed so far was finite.
  [[nodiscard]] bool weights_finite() const { return weights_finite_; }

  /// The input of tiles [first, last) of one row: (tiles, R, channel_pitch). Channel by channel, so that memory is read in long
  /// runs.
  void pack_tiles(std::int64_t n, std::int64_t g, std::int64_t first, std::int64_t last, T* to) const {
    const E* from = in_ + (n * shape.G + g) * shape.R * shape.in_length;
    for (std::int64_t c = 0; c < shape.R; ++c, from += shape.in_length)
      for (std::int64_t t = first; t < last; ++t)
        pack_channel(from, tiles_[static_cast<std::size_t>(t)], to + (t - first) * tile_size() + c * layout_.channel_pitch);
  }

  /// All phases of one panel and tile over all channels, written to the output through `results`.
  void compute(std::int64_t n, std::int64_t g, std::int64_t p, std::int64_t t, const T* w, const T* x, T* results) const {
    const Panel& panel = panels_[static_cast<std::size_t>(p)];
    const Tile& tile = tiles_[static_cast<std::size_t>(t)];
    if constexpr (std::is_same_v<E, T>) {
      const bool whole = panel.rows == panel.height && tile.first + std::int64_t{tile.vectors} * gemm_.lanes <= shape.q_count;
      if (shape.out_stride == 1 && whole)  // nothing to interleave: directly to the output
        return accumulate_into(g, p, t, 0, 1, {0, shape.R}, w, x, out_row(n, g, p) + tile.first, shape.out_length);
    }
    for (std::int64_t r = 0; r < shape.out_stride; r += kPhasesAtOnce) {
      const std::int64_t phases = std::min(kPhasesAtOnce, shape.out_stride - r);
      accumulate_into(g, p, t, r, phases, {0, shape.R}, w, x, results, phases * result_pitch());
      write(n, g, p, t, r, phases, results);
    }
  }

  /// The same for channels [first, last) alone, with their weights `w` and input `x`: added to `results`, or started from the
  /// bias if first is 0. For at most kPhasesAtOnce phases; call finish afterwards.
  void accumulate(std::int64_t g, std::int64_t p, std::int64_t t, std::int64_t first, std::int64_t last, const T* w, const T* x,
                  T* results) const {
    accumulate_into(g, p, t, 0, shape.out_stride, {first, last}, w, x, results, shape.out_stride * result_pitch());
  }
  void finish(std::int64_t n, std::int64_t g, std::int64_t p, std::int64_t t, const T* results) const {
    write(n, g, p, t, 0, shape.out_stride, results);
  }

 private:
  static constexpr std::int64_t kPrefetchChannels = 8;

  struct Channels {
    std::int64_t first, last;
  };

  [[nodiscard]] std::int64_t result_pitch() const { return std::int64_t{widest_} * gemm_.lanes; }
  [[nodiscard]] E* out_row(std::int64_t n, std::int64_t g, std::int64_t p) const {
    return out_ + ((n * shape.G + g) * shape.M + panels_[static_cast<std::size_t>(p)].first) * shape.out_length;
  }

  // A channel's weights of one panel are a short run far from the next, so the hardware does not prefetch them.
  static void prefetch(const E* from, std::int64_t count) {
    constexpr std::int64_t kLine = 64 / sizeof(E);
    for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i);
  }

  void pack_by_phase(const Panel& panel, const E* from, std::int64_t channels, T* to) const {
    std::vector<std::int64_t> where(static_cast<std::size_t>(shape.K));
    for (std::size_t k = 0; k < where.size(); ++k) where[k] = taps_before_[k] * channels + tap_index_[k];
    for (std::int64_t c = 0; c < channels; ++c, from += shape.w_channel) {
      prefetch(from + std::min(kPrefetchChannels, channels - 1 - c) * shape.w_channel, panel.rows * shape.w_row);
      pack_.transpose(from, shape.w_row, panel.rows, panel.height, shape.K, where.data(), to, panel.height);
      for (std::size_t k = 0; k < where.size(); ++k) where[k] += taps_beside_[k];
    }
  }

  void pack_channel(const E* from, const Tile& tile, T* to) const {
    for (const Segment& s : layout_.segments)
      pack_.gather_row(from, shape.in_length, shape.in_stride * (tile.first + s.first) + s.residue, shape.in_stride,
                       to + s.base, s.span + std::int64_t{tile.vectors} * gemm_.lanes);
  }

  void place_taps() {
    std::int64_t before = 0;
    taps_before_.resize(static_cast<std::size_t>(shape.K));
    tap_index_.resize(static_cast<std::size_t>(shape.K));
    taps_beside_.resize(static_cast<std::size_t>(shape.K));
    for (std::size_t r = 0; r < shape.phases.size(); ++r) {
      const auto& taps = shape.phases[r];
      phase_taps_before_.push_back(before);
      for (std::size_t j = 0; j < taps.size(); ++j) {
        const auto k = static_cast<std::size_t>(taps[j].k);
        taps_before_[k] = before;
        tap_index_[k] = static_cast<std::int64_t>(j);
        taps_beside_[k] = static_cast<std::int64_t>(taps.size());
      }
      before += static_cast<std::int64_t>(taps.size());
      std::vector<std::int32_t> offsets;
      offsets.reserve(static_cast<std::size_t>(shape.R) * taps.size() + kOffsetSlack);
      for (std::int64_t c = 0; c < shape.R; ++c)
        for (const std::int64_t offset : layout_.tap_offset[r])
          offsets.push_back(static_cast<std::int32_t>(c * layout_.channel_pitch + offset));
      offsets.resize(offsets.size() + kOffsetSlack);
      offsets_.push_back(std::move(offsets));
    }
  }

  // Phases [r0, r0 + phases) to rows `pitch` apart; phases are neighbours.
  void accumulate_into(std::int64_t g, std::int64_t p, std::int64_t t, std::int64_t r0, std::int64_t phases, Channels channels,
                       const T* w, const T* x, T* results, std::int64_t pitch) const {
    const Panel& panel = panels_[static_cast<std::size_t>(p)];
    const Tile& tile = tiles_[static_cast<std::size_t>(t)];
    T bias[std::size_t{1} << (kPanelKinds - 1)] = {};
    for (std::int64_t m = 0; bias_ != nullptr && m < panel.rows; ++m)
      bias[m] = static_cast<T>(bias_[g * shape.M + panel.first + m]);
    const std::int64_t count = channels.last - channels.first;
    for (std::int64_t r = r0; r < r0 + phases; ++r) {
      const auto taps = static_cast<std::int64_t>(shape.phases[static_cast<std::size_t>(r)].size());
      gemm_.micro[panel.kind][tile.vectors](w + phase_taps_before_[static_cast<std::size_t>(r)] * count * panel.height, x,
                                            offsets_[static_cast<std::size_t>(r)].data(), count * taps,
                                            channels.first == 0 ? bias : nullptr, results + (r - r0) * result_pitch(), pitch);
    }
  }

  void write(std::int64_t n, std::int64_t g, std::int64_t p, std::int64_t t, std::int64_t r, std::int64_t phases,
             const T* results) const {
    const Tile& tile = tiles_[static_cast<std::size_t>(t)];
    const std::int64_t count = std::min<std::int64_t>(shape.q_count - tile.first, std::int64_t{tile.vectors} * gemm_.lanes);
    const std::int64_t start = shape.out_stride * tile.first + r;
    for (std::int64_t m = 0; m < panels_[static_cast<std::size_t>(p)].rows; ++m)
      pack_.interleave(results + m * phases * result_pitch(), result_pitch(), phases, shape.out_stride, count,
                       shape.out_length - start, out_row(n, g, p) + m * shape.out_length + start);
  }

  const GemmKernels<T>& gemm_;
  const PackKernels<E>& pack_;
  std::vector<Panel> panels_;
  int widest_;  // vectors per widest tile
  std::vector<Tile> tiles_;
  TileLayout layout_;
  const E* in_;
  const E* w_;
  const E* bias_;
  E* out_;
  std::vector<std::int64_t> phase_taps_before_;     // (phases) number of taps of the previous phases
  std::vector<std::vector<std::int32_t>> offsets_;  // (phases, R*taps + slack) within a packed tile
  std::vector<std::int64_t> taps_before_, tap_index_,
      taps_beside_;  // (K) number of taps: in the phases before k's; in k's phase before k; in k's phase
  mutable std::atomic<bool> weights_finite_ = true;
};

}  // namespace polyphase::cpu
