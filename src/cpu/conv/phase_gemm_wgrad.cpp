// wgrad: dw[ci,co,k] = sum over n, i of x[n,ci,i] * y[n,co, S*i + k*D - P_l], with the register tiles of forward and dgrad. The
// sum runs over positions (n, i). A panel is 8 input channels of x, transposed. The vectors run over (k, co) of y, transposed,
// with y's rows sorted by residue mod S, so that consecutive i are consecutive rows. Positions are split into blocks; a block's
// sums are f32, and blocks are added in double, so that the error does not grow with the length. With many blocks and few
// weights, blocks form slices that threads share; else threads share the weights. Both splits depend on the shape alone, so the
// bits do not depend on the number of threads.

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "cpu/conv/conv_element.hpp"
#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/phase_gemm.hpp"
#include "cpu/conv/recompute_non_finite.hpp"
#include "cpu/conv/tiling.hpp"
#include "cpu/conv/wgrad_plan.hpp"
#include "cpu/memory/scratch.hpp"
#include "cpu/threads.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kSliceBytes = 128 << 20;  // most memory for the sums of all slices
constexpr std::int64_t kMostSlices = 32;
constexpr std::int64_t kFewestSlices = 8;
constexpr std::int64_t kMostBlocksAtOnce = 8;
constexpr std::int64_t kTileBytesOfY = 1 << 20;   // of y for one register tile, to stay in L2
constexpr std::int64_t kTileLanesBytes = 48 * 4;  // of one row of it
constexpr std::int64_t kStripChannels = 16;       // of y that are transposed together: whole cache lines of f32

template <class E>
class Wgrad {
  using T = Compute<E>;

 public:
  Wgrad(const ConvProblem& problem, const E* x, const E* y, E* w)
      : p_(problem),
        gemm_(gemm_kernels<T>()),
        pack_(pack_kernels<E>()),
        block_(block_shape(problem, gemm_.lanes)),
        layout_(window_layout(problem, block_.positions, gemm_.lanes)),
        inner_(interior(gather_shape(problem, ConvDirection::dgrad), 0)),
        panels_(make_panels(p_.channels_in_per_group(), gemm_.widest)),
        group_lanes_(layout_.joint ? p_.K * p_.channels_out_per_group() : p_.channels_out_per_group()),
        tiles_(make_tiles(0, group_lanes_, gemm_.widest[panels_.front().kind], gemm_.lanes)),
        sums_pitch_(ceil_div(group_lanes_, gemm_.lanes) * gemm_.lanes),
        x_(x),
        y_(y),
        w_(w) {
    for (std::int64_t n = 0; n < block_.samples; ++n)
      for (std::int64_t i = 0; i < block_.positions; ++i)
        offset_.push_back(static_cast<std::int32_t>((n * layout_.rows + i * layout_.step) * layout_.pitch));
    offset_.resize(offset_.size() + kOffsetSlack);
  }

  /// Whether x is finite at every position where a tap meets padding of y.
  [[nodiscard]] bool run() const {
    if (fits_at_once())
      run_at_once();
    else
      run_in_slices();
    return finite_at_ends_;
  }

 private:
  static constexpr std::int64_t kMostLanes = 64 / sizeof(T) * kMaxVectors;
  static constexpr std::int64_t kMostRows = 1 << (kPanelKinds - 1);

  /// A register tile: a panel of input channels by vectors of output channels.
  struct TileItem {
    const Panel& panel;
    const Tile& tile;
    std::int64_t g;
    std::int64_t row;           // the panel's first input channel, counted over all groups
    std::int64_t lanes;         // of the tile
    std::int64_t panel_offset;  // offset of the panel in packed x
  };

  /// Item i of one lane group: neighbouring items share the columns of y.
  [[nodiscard]] TileItem item_of(std::int64_t i) const {
    const std::int64_t panels = static_cast<std::int64_t>(panels_.size()), tiles = static_cast<std::int64_t>(tiles_.size());
    const std::int64_t p = i % panels, g = i / panels / tiles;
    const Panel& panel = panels_[static_cast<std::size_t>(p)];
    const Tile& tile = tiles_[static_cast<std::size_t>(i / panels % tiles)];
    return {panel,
            tile,
            g,
            g * p_.channels_in_per_group() + panel.first,
            std::int64_t{tile.vectors} * gemm_.lanes,
            p * block_positions() * panels_.front().height};
  }
  [[nodiscard]] std::int64_t tile_items() const { return p_.G * static_cast<std::int64_t>(tiles_.size() * panels_.size()); }
  [[nodiscard]] double operations(std::int64_t blocks) const {
    return 2.0 * static_cast<double>(blocks * block_positions()) * static_cast<double>(p_.C_in * group_lanes_ * lane_groups());
  }

  [[nodiscard]] std::int64_t lane_groups() const { return layout_.joint ? 1 : p_.K; }
  [[nodiscard]] std::int64_t row_blocks() const { return ceil_div(p_.L_in, block_.positions); }
  [[nodiscard]] std::int64_t blocks() const { return row_blocks() * ceil_div(p_.N, block_.samples); }
  [[nodiscard]] std::int64_t sums_size() const { return p_.C_in * lane_groups() * sums_pitch_; }
  [[nodiscard]] std::int64_t block_positions() const { return block_.samples * block_.positions; }
  // Fewer in the last block of a row: no padding zero may meet an infinity of the user's data.
  [[nodiscard]] std::int64_t valid_positions(std::int64_t block) const {
    if (block_.samples > 1) return block_.samples * block_.positions;
    return std::min(block_.positions, p_.L_in - block % row_blocks() * block_.positions);
  }
  // For one group of one block; y has a vector of slack that joint tiles may read.
  [[nodiscard]] std::int64_t y_size() const {
    return ceil_div(block_.samples * layout_.rows * layout_.pitch + kMaxVectors * gemm_.lanes, gemm_.lanes) * gemm_.lanes;
  }
  [[nodiscard]] std::int64_t x_size() const {
    return block_positions() * static_cast<std::int64_t>(panels_.size()) * panels_.front().height;
  }

  /// The number of slices: a function of the shape alone. One: threads share the weights instead.
  [[nodiscard]] std::int64_t slice_count() const {
    const std::int64_t fitting = kSliceBytes / (sums_size() * static_cast<std::int64_t>(sizeof(double)));
    std::int64_t slices = kMostSlices;
    while (slices > std::min(fitting, blocks() / 2)) slices /= 2;
    return slices >= kFewestSlices ? slices : 1;
  }

  void run_in_slices() const {
    const std::int64_t slices = slice_count();
    Scratch<double> sums(slices * sums_size());
    parallel_for(slices, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t s = begin; s < end; ++s)
        add_blocks(blocks() * s / slices, blocks() * (s + 1) / slices, sums.data() + s * sums_size());
    });
    const std::int64_t rows = p_.C_in;
    parallel_for(rows, worthwhile_grain(static_cast<double>(slices * sums_size() / rows)),
                 [&](std::int64_t begin, std::int64_t end) {
                   Scratch<T> taps(p_.K * taps_pitch());
                   for (std::int64_t row = begin; row < end; ++row) finish_row(row, slices, sums.data(), taps.data());
                 });
  }

  void add_blocks(std::int64_t first, std::int64_t last, double* sums) const {
    const std::int64_t at_once = std::min(kMostBlocksAtOnce, last - first);
    Scratch<T> y(at_once * p_.G * y_size());
    Scratch<T> x(at_once * p_.G * x_size());
    for (std::int64_t block = first; block < last; block += at_once) {
      const std::int64_t count = std::min(at_once, last - block);
      pack_blocks(block, count, x.data(), y.data());
      const std::int64_t items = lane_groups() * tile_items();
      parallel_for(items, worthwhile_grain(operations(count) / static_cast<double>(items)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       const std::int64_t group = i / tile_items();
                       double total[kMostRows * kMostLanes];
                       sum_tile(item_of(i % tile_items()), group, block, count, x.data(), y.data(), total);
                       add_to_sums(item_of(i % tile_items()), group, total, sums, block == first);
                     }
                   });
    }
  }

  /// Few positions with many weights: each register tile is summed over all positions for every tap, and written to w.
  [[nodiscard]] bool fits_at_once() const {
    const std::int64_t rows = blocks() * block_.samples * layout_.rows;
    return !layout_.joint && blocks() <= kMostBlocksAtOnce && rows * kTileLanesBytes <= kTileBytesOfY;
  }

  void run_at_once() const {
    Scratch<T> y(blocks() * p_.G * y_size());
    Scratch<T> x(blocks() * p_.G * x_size());
    pack_blocks(0, blocks(), x.data(), y.data());
    parallel_for(tile_items(), worthwhile_grain(operations(blocks()) / static_cast<double>(tile_items())),
                 [&](std::int64_t begin, std::int64_t end) {
                   Scratch<T> taps(kMostRows * p_.K * kMostLanes);
                   for (std::int64_t i = begin; i < end; ++i) {
                     const TileItem item = item_of(i);
                     for (std::int64_t k = 0; k < p_.K; ++k) {
                       T* const to = taps.data() + k * kMostLanes;
                       const std::int64_t pitch = p_.K * kMostLanes;
                       if (blocks() == 1) {
                         multiply_tile(item, k, 0, 0, x.data(), y.data(), to, pitch);
                         continue;
                       }
                       double total[kMostRows * kMostLanes];
                       sum_tile(item, k, 0, blocks(), x.data(), y.data(), total);
                       for (std::int64_t m = 0; m < item.panel.rows; ++m)
                         for (std::int64_t j = 0; j < item.lanes; ++j)
                           to[m * pitch + j] = static_cast<T>(total[m * item.lanes + j]);
                     }
                     write_taps(item, taps.data());
                   }
                 });
  }

  // Writes (rows, K, lanes) in w's order (rows, lanes, K).
  void write_taps(const TileItem& item, const T* taps) const {
    const std::int64_t channels = p_.channels_out_per_group();
    const std::int64_t count = std::min(item.lanes, channels - item.tile.first);
    for (std::int64_t m = 0; m < item.panel.rows; ++m)
      pack_.interleave(taps + m * p_.K * kMostLanes, kMostLanes, p_.K, p_.K, count, count * p_.K,
                       w_ + ((item.row + m) * channels + item.tile.first) * p_.K);
  }

  void pack_blocks(std::int64_t first, std::int64_t count, T* x, T* y) const {
    const std::int64_t panels = static_cast<std::int64_t>(panels_.size());
    const std::int64_t channels = p_.channels_out_per_group();
    const std::int64_t strips = ceil_div(channels, kStripChannels);
    const std::int64_t items = panels + strips;  // per block and group
    const double work = static_cast<double>(kStripChannels * block_.samples * layout_.rows);
    parallel_for(count * p_.G * items, worthwhile_grain(work), [&](std::int64_t begin, std::int64_t end) {
      Scratch<T> strip(layout_.where.empty() ? kStripChannels * block_.positions : 0);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t which = i / items;  // (block, group)
        const std::int64_t block = first + which / p_.G, g = which % p_.G, item = i % items;
        if (item < panels)
          pack_x(block, g, panels_[static_cast<std::size_t>(item)],
                 x + which * x_size() + item * block_positions() * panels_.front().height);
        else
          pack_y(block, g, (item - panels) * kStripChannels, strip.data(), y + which * y_size());
      }
    });
  }

  // In x, positions past the end of a row and samples past the last are zero, so the values of y there do not matter.
  void pack_x(std::int64_t block, std::int64_t g, const Panel& panel, T* to) const {
    const std::int64_t first = block % row_blocks() * block_.positions;
    const std::int64_t count = std::min(block_.positions, p_.L_in - first);
    for (std::int64_t s = 0; s < block_.samples; ++s, to += block_.positions * panel.height) {
      const std::int64_t n = block / row_blocks() * block_.samples + s;
      const std::int64_t valid = n < p_.N ? count : 0;
      if (valid > 0)
        pack_.transpose(x_ + ((n * p_.G + g) * p_.channels_in_per_group() + panel.first) * p_.L_in + first, p_.L_in, panel.rows,
                        panel.height, valid, nullptr, to, panel.height);
      if (!finite_at_ends(inner_, first, valid, to, panel.height)) finite_at_ends_ = false;
      std::fill(to + valid * panel.height, to + block_.positions * panel.height, T{0});
    }
  }

  // Some channels of y from `channel` on; missing positions and samples are zero.
  void pack_y(std::int64_t block, std::int64_t g, std::int64_t channel, T* strip, T* to) const {
    const std::int64_t channels = p_.channels_out_per_group();
    const std::int64_t rows = std::min(kStripChannels, channels - channel);
    const bool last = channel + rows == channels;
    const std::int64_t padded = last && !layout_.joint ? sums_pitch_ - channel : rows;
    const std::int64_t start = p_.S * (block % row_blocks() * block_.positions) - p_.P_l;
    for (std::int64_t s = 0; s < block_.samples; ++s) {
      const std::int64_t n = block / row_blocks() * block_.samples + s;
      const E* const from = n < p_.N ? y_ + ((n * p_.G + g) * channels + channel) * p_.L_out : nullptr;
      T* const rows_of_sample = to + s * layout_.rows * layout_.pitch + channel;
      if (layout_.where.empty())
        pack_taps(from, start, rows, padded, strip, rows_of_sample);
      else
        pack_window(from, start, rows, padded, rows_of_sample);
    }
    if (last) std::fill(to + block_.samples * layout_.rows * layout_.pitch, to + y_size(), T{0});
  }
  // The rows that taps share, from position `start` on.
  void pack_window(const E* from, std::int64_t start, std::int64_t rows, std::int64_t padded, T* to) const {
    const auto window = static_cast<std::int64_t>(layout_.where.size());
    const std::int64_t length = from == nullptr ? 0 : p_.L_out;
    const std::int64_t begin = std::clamp<std::int64_t>(-start, 0, window), end = std::clamp(length - start, begin, window);
    if (begin < end)
      pack_.transpose(from + start + begin, p_.L_out, rows, padded, end - begin, layout_.where.data() + begin, to,
                      layout_.pitch);
    const auto clear = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t j = first; j < last; ++j)
        if (const std::int64_t row = layout_.where[static_cast<std::size_t>(j)]; row >= 0)
          std::fill_n(to + row * layout_.pitch, padded, T{0});
    };
    clear(0, begin);
    clear(end, window);
  }
  // The rows of each tap on their own.
  void pack_taps(const E* from, std::int64_t start, std::int64_t rows, std::int64_t padded, T* strip, T* to) const {
    const std::int64_t positions = block_.positions;
    for (std::int64_t k = 0; k < p_.K; ++k) {
      for (std::int64_t m = 0; m < rows; ++m)
        pack_.gather_row(from == nullptr ? nullptr : from + m * p_.L_out, from == nullptr ? 0 : p_.L_out, start + k * p_.D,
                         p_.S, strip + m * positions, positions);
      pack_compute().transpose(strip, positions, rows, padded, positions, nullptr, to + k * positions * layout_.pitch,
                               layout_.pitch);
    }
  }

  [[nodiscard]] static const PackKernels<T>& pack_compute() { return pack_kernels<T>(); }

  /// One register tile of weights of one lane group over block `block`, the b-th of the packed ones: to[m*pitch + lane].
  void multiply_tile(const TileItem& item, std::int64_t group, std::int64_t block, std::int64_t b, const T* x, const T* y,
                     T* to, std::int64_t pitch) const {
    const T zero[kMostRows] = {};
    const std::int64_t which = b * p_.G + item.g;
    const T* rows = y + layout_.tap_row[static_cast<std::size_t>(group)] * layout_.pitch + item.tile.first;
    gemm_.micro[item.panel.kind][item.tile.vectors](x + which * x_size() + item.panel_offset, rows + which * y_size(),
                                                    offset_.data(), valid_positions(block), zero, to, pitch);
  }

  /// The same, summed over the packed blocks from `first` on: total[m*lanes + lane].
  void sum_tile(const TileItem& item, std::int64_t group, std::int64_t first, std::int64_t count, const T* x, const T* y,
                double* total) const {
    alignas(64) T part[kMostRows * kMostLanes];
    const std::int64_t size = item.panel.rows * item.lanes;
    for (std::int64_t b = 0; b < count; ++b) {
      multiply_tile(item, group, first + b, b, x, y, part, item.lanes);
      pack_.add(part, size, b == 0, total);
    }
  }

  void add_to_sums(const TileItem& item, std::int64_t group, const double* total, double* sums, bool first_time) const {
    for (std::int64_t m = 0; m < item.panel.rows; ++m) {
      double* to = sums + ((item.row + m) * lane_groups() + group) * sums_pitch_ + item.tile.first;
      for (std::int64_t i = 0; i < item.lanes; ++i) to[i] = (first_time ? 0.0 : to[i]) + total[m * item.lanes + i];
    }
  }

  [[nodiscard]] std::int64_t taps_pitch() const { return ceil_div(p_.channels_out_per_group(), kMostLanes) * kMostLanes; }

  // Adds the slices in order, rounds once, and restores the order (co, k). `taps` (K, taps_pitch()) is scratch.
  void finish_row(std::int64_t row, std::int64_t slices, const double* sums, T* taps) const {
    const std::int64_t channels = p_.channels_out_per_group();
    for (std::int64_t k = 0; k < p_.K; ++k) {
      const double* const own = sums + row * lane_groups() * sums_pitch_ + k * (layout_.joint ? channels : sums_pitch_);
      T* const to = taps + k * taps_pitch();
      for (std::int64_t co = 0; co < channels; ++co) {
        double sum = own[co];
        for (std::int64_t s = 1; s < slices; ++s) sum += own[s * sums_size() + co];
        to[co] = static_cast<T>(sum);
      }
    }
    pack_.interleave(taps, taps_pitch(), p_.K, p_.K, channels, channels * p_.K, w_ + row * channels * p_.K);
  }

  const ConvProblem& p_;
  const GemmKernels<T>& gemm_;
  const PackKernels<E>& pack_;
  BlockShape block_;
  WindowLayout layout_;
  Interior inner_;
  std::vector<Panel> panels_;
  std::int64_t group_lanes_;  // elements that vectors run over: (co), or (k, co) if joint
  std::vector<Tile> tiles_;
  std::int64_t sums_pitch_;
  const E* x_;
  const E* y_;
  E* w_;
  std::vector<std::int32_t> offset_;  // (samples, positions, then slack) within packed y
  mutable std::atomic<bool> finite_at_ends_ = true;
};

}  // namespace

void phase_gemm_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w) {
  bool finite = true;
  with_element(problem, [&](auto element) {
    using E = decltype(element);
    finite = Wgrad<E>(problem, static_cast<const E*>(x), static_cast<const E*>(y), static_cast<E*>(w)).run();
  });
  if (!finite) recompute_weights(problem, x, y, w);
}

}  // namespace polyphase::cpu
