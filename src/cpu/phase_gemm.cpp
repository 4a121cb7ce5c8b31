#include "cpu/phase_gemm.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "cpu/conv_kernels.hpp"
#include "cpu/phase_plan.hpp"
#include "cpu/scratch.hpp"
#include "cpu/threads.hpp"
#include "cpu/tiling.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kTileBytes = 512 * 1024;  // packed input kept in a core's L2 while all weights pass by
constexpr std::int64_t kItemsPerThread = 8;      // so that equal shares of items are nearly equal shares of time
constexpr std::int64_t kPhasesAtOnce = 16;
constexpr std::int64_t kPrefetchChannels = 8;

/// A channel's weights of one panel are a short run far from the next: the hardware does not see them coming.
template <class E>
void prefetch(const E* from, std::int64_t count) {
  constexpr std::int64_t kLine = 64 / sizeof(E);
  for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i);
}

template <class E>
class Gather {
  using T = Compute<E>;

 public:
  Gather(const GatherShape& shape, const E* in, const E* w, const E* bias, E* out)
      : shape_(shape),
        gemm_(gemm_kernels<T>()),
        pack_(pack_kernels<E>()),
        panels_(make_panels(shape.M, gemm_.widest)),
        widest_(gemm_.widest[panels_.front().kind]),
        tiles_(make_tiles(0, shape.q_count, widest_, gemm_.lanes)),
        layout_(tile_layout(shape, std::int64_t{widest_} * gemm_.lanes, gemm_.lanes)),
        in_(in),
        w_(w),
        bias_(bias),
        out_(out) {
    place_taps();
  }

  /// What is smaller, input or weights, is packed beforehand, once; the other by each thread as it goes.
  void run() const {
    const std::int64_t packed_input = shape_.N * tiles() * tile_size();
    const std::int64_t packed_weights = panels() * panel_size();
    if (packed_input < packed_weights)
      run_by_panels();
    else
      run_by_tiles();
  }

 private:
  [[nodiscard]] std::int64_t tiles() const { return static_cast<std::int64_t>(tiles_.size()); }
  [[nodiscard]] std::int64_t panels() const { return static_cast<std::int64_t>(panels_.size()); }
  [[nodiscard]] std::int64_t tile_size() const { return shape_.R * layout_.channel_pitch; }
  [[nodiscard]] std::int64_t panel_size() const { return shape_.R * shape_.K * panels_.front().height; }  // of one group
  [[nodiscard]] std::int64_t scratch_pitch() const { return std::int64_t{widest_} * gemm_.lanes; }
  [[nodiscard]] std::int64_t phases_at_once() const { return std::min(shape_.out_stride, kPhasesAtOnce); }
  [[nodiscard]] std::int64_t scratch_size() const { return panels_.front().height * phases_at_once() * scratch_pitch(); }
  [[nodiscard]] double operations_per_tile() const {  // all panels of one group
    return 2.0 * static_cast<double>(shape_.M * shape_.R * shape_.K * scratch_pitch()) + static_cast<double>(tile_size());
  }

  // Phase r's part of a packed panel starts after those of the phases before it, and is in the order (channel, tap).
  void place_taps() {
    std::int64_t before = 0;
    where_first_.resize(static_cast<std::size_t>(shape_.K));
    where_step_.resize(static_cast<std::size_t>(shape_.K));
    for (std::size_t r = 0; r < shape_.phases.size(); ++r) {
      const auto& taps = shape_.phases[r];
      phase_first_.push_back(before);
      for (std::size_t j = 0; j < taps.size(); ++j) {
        where_first_[static_cast<std::size_t>(taps[j].k)] = before + static_cast<std::int64_t>(j);
        where_step_[static_cast<std::size_t>(taps[j].k)] = static_cast<std::int64_t>(taps.size());
      }
      offsets_.emplace_back();
      for (std::int64_t c = 0; c < shape_.R; ++c)
        for (const std::int64_t offset : layout_.tap_offset[r])
          offsets_.back().push_back(static_cast<std::int32_t>(c * layout_.channel_pitch + offset));
      offsets_.back().resize(offsets_.back().size() + kOffsetSlack);
      before += shape_.R * static_cast<std::int64_t>(taps.size());
    }
  }

  void pack_panel(std::int64_t g, const Panel& panel, T* to) const {
    const E* from = w_ + g * shape_.w_group + panel.first * shape_.w_row;
    if (shape_.phases.size() == 1 && shape_.w_channel == shape_.K)  // columns (channel, tap) already stand in order
      return pack_.transpose(from, shape_.w_row, panel.rows, panel.height, shape_.R * shape_.K, nullptr, to, panel.height);
    std::vector<std::int64_t> where = where_first_;
    for (std::int64_t c = 0; c < shape_.R; ++c) {
      prefetch(from + std::min(c + kPrefetchChannels, shape_.R - 1) * shape_.w_channel, panel.rows * shape_.w_row);
      pack_.transpose(from + c * shape_.w_channel, shape_.w_row, panel.rows, panel.height, shape_.K, where.data(), to,
                      panel.height);
      for (std::size_t k = 0; k < where.size(); ++k) where[k] += where_step_[k];
    }
  }

  void pack_tile(std::int64_t n, std::int64_t g, const Tile& tile, T* to) const {
    const E* from = in_ + (n * shape_.G + g) * shape_.R * shape_.in_length;
    for (std::int64_t c = 0; c < shape_.R; ++c, from += shape_.in_length, to += layout_.channel_pitch)
      for (const Segment& s : layout_.segments)
        pack_.gather_row(from, shape_.in_length, shape_.in_stride * (tile.first + s.first) + s.residue, shape_.in_stride,
                         to + s.base, s.span + std::int64_t{tile.vectors} * gemm_.lanes);
  }

  void compute(std::int64_t n, std::int64_t g, const Panel& panel, const Tile& tile, const T* w, const T* x, T* scratch) const {
    T bias[std::size_t{1} << (kPanelKinds - 1)] = {};
    const std::int64_t channel = g * shape_.M + panel.first;
    for (std::int64_t m = 0; bias_ != nullptr && m < panel.rows; ++m) bias[m] = static_cast<T>(bias_[channel + m]);
    const MicroKernel<T> micro = gemm_.micro[panel.kind][tile.vectors];
    const std::int64_t pitch = scratch_pitch();
    const std::int64_t start = shape_.out_stride * tile.first;  // where the tile's phase 0 lands
    for (std::int64_t r0 = 0; r0 < shape_.out_stride; r0 += kPhasesAtOnce) {
      const std::int64_t phases = std::min(kPhasesAtOnce, shape_.out_stride - r0);
      for (std::int64_t r = 0; r < phases; ++r) {
        const auto& offset = offsets_[static_cast<std::size_t>(r0 + r)];
        micro(w + phase_first_[static_cast<std::size_t>(r0 + r)] * panel.height, x, offset.data(),
              static_cast<std::int64_t>(offset.size()) - kOffsetSlack, bias, scratch + r * pitch, phases * pitch);
      }
      const std::int64_t q_left = shape_.q_count - tile.first;
      for (std::int64_t m = 0; m < panel.rows; ++m)
        pack_.interleave(scratch + m * phases * pitch, pitch, phases, shape_.out_stride,
                         std::min<std::int64_t>(q_left, std::int64_t{tile.vectors} * gemm_.lanes), -start - r0,
                         shape_.out_length - start - r0,
                         out_ + (n * shape_.G * shape_.M + channel + m) * shape_.out_length + start + r0);
    }
  }

  /// Long rows: weights packed once for all, each item a few tiles of one row that stay in the L2 while the panels pass.
  void run_by_tiles() const {
    Scratch<T> weights(shape_.G * panels() * panel_size());
    parallel_for(
        shape_.G * panels(), worthwhile_grain(static_cast<double>(panel_size())), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            pack_panel(i / panels(), panels_[static_cast<std::size_t>(i % panels())], weights.data() + i * panel_size());
        });
    const std::int64_t rows = shape_.N * shape_.G;
    const std::int64_t fitting = std::max<std::int64_t>(1, kTileBytes / (tile_size() * static_cast<std::int64_t>(sizeof(T))));
    const std::int64_t sharing = std::max<std::int64_t>(1, rows * tiles() / (kItemsPerThread * num_threads()));
    const std::int64_t block = std::min({fitting, sharing, tiles()});
    const std::int64_t blocks = ceil_div(tiles(), block);
    parallel_for(rows * blocks, worthwhile_grain(operations_per_tile() * static_cast<double>(block)),
                 [&](std::int64_t begin, std::int64_t end) {
                   Scratch<T> input(block * tile_size());
                   Scratch<T> scratch(scratch_size());
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t first = i % blocks * block;
                     block_of_tiles(i / blocks, first, std::min(first + block, tiles()), weights.data(), input.data(),
                                    scratch.data());
                   }
                 });
  }

  void block_of_tiles(std::int64_t row, std::int64_t first, std::int64_t last, const T* weights, T* input, T* scratch) const {
    const std::int64_t n = row / shape_.G, g = row % shape_.G;
    for (std::int64_t t = first; t < last; ++t)
      pack_tile(n, g, tiles_[static_cast<std::size_t>(t)], input + (t - first) * tile_size());
    for (std::int64_t p = 0; p < panels(); ++p)
      for (std::int64_t t = first; t < last; ++t)
        compute(n, g, panels_[static_cast<std::size_t>(p)], tiles_[static_cast<std::size_t>(t)],
                weights + (g * panels() + p) * panel_size(), input + (t - first) * tile_size(), scratch);
  }

  /// Short rows under many weights: the input packed once for all, each item one panel (read from memory once) over a share of
  /// the tiles.
  void run_by_panels() const {
    const std::int64_t all_tiles = shape_.N * tiles();  // of one group
    Scratch<T> input(shape_.G * all_tiles * tile_size());
    parallel_for(shape_.G * all_tiles, worthwhile_grain(static_cast<double>(tile_size())),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     pack_tile(i % all_tiles / tiles(), i / all_tiles, tiles_[static_cast<std::size_t>(i % tiles())],
                               input.data() + i * tile_size());
                 });
    // Few panels for many threads: cut the tiles, too, though each part packs the panel anew.
    const std::int64_t parts = std::min(all_tiles, ceil_div(2 * num_threads(), shape_.G * panels()));
    const double operations = operations_per_tile() * static_cast<double>(all_tiles) / static_cast<double>(panels() * parts);
    parallel_for(shape_.G * panels() * parts, worthwhile_grain(operations), [&](std::int64_t begin, std::int64_t end) {
      Scratch<T> weights(panel_size());
      Scratch<T> scratch(scratch_size());
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t g = i / parts / panels();
        const Panel& panel = panels_[static_cast<std::size_t>(i / parts % panels())];
        pack_panel(g, panel, weights.data());
        for (std::int64_t t = all_tiles * (i % parts) / parts; t < all_tiles * (i % parts + 1) / parts; ++t)
          compute(t / tiles(), g, panel, tiles_[static_cast<std::size_t>(t % tiles())], weights.data(),
                  input.data() + (g * all_tiles + t) * tile_size(), scratch.data());
      }
    });
  }

  const GatherShape& shape_;
  const GemmKernels<T>& gemm_;
  const PackKernels<E>& pack_;
  std::vector<Panel> panels_;
  int widest_;
  std::vector<Tile> tiles_;
  TileLayout layout_;
  const E* in_;
  const E* w_;
  const E* bias_;
  E* out_;
  std::vector<std::int64_t> phase_first_;               // (phases)
  std::vector<std::vector<std::int32_t>> offsets_;      // (phases, R*taps + slack) within a packed tile
  std::vector<std::int64_t> where_first_, where_step_;  // (K) rows of a packed panel
};

}  // namespace

std::optional<std::string> phase_gemm_can_implement(const ConvProblem& problem, ConvDirection) {
  // Offsets within a packed tile are 32 bits; a tap takes at most two tile widths (2 * 128) of it.
  const std::int64_t limit = (std::int64_t{1} << 31) / 256;
  const std::int64_t channels = std::max(problem.channels_in_per_group(), problem.channels_out_per_group());
  if (channels > limit / problem.K) return concat("C/G * K = ", channels, " * ", problem.K, " is above ", limit);
  return std::nullopt;
}

void phase_gemm_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                       void* out) {
  const GatherShape shape = gather_shape(problem, direction);
  if (shape.N == 0 || shape.M == 0 || shape.q_count == 0) return;
  dispatch(problem.dtype, [&](auto element) {
    using E = decltype(element);
    if constexpr (std::is_same_v<E, std::int64_t>)
      throw DTypeError(concat("conv ", direction, ": expected a floating-point dtype, got ", problem.dtype));
    else
      Gather<E>(shape, static_cast<const E*>(in), static_cast<const E*>(w), static_cast<const E*>(bias), static_cast<E*>(out))
          .run();
  });
}

}  // namespace polyphase::cpu
