#include "cpu/conv/phase_gemm.hpp"

#include <algorithm>
#include <type_traits>

#include "cpu/conv/conv_element.hpp"
#include "cpu/conv/phase_gemm_steps.hpp"
#include "cpu/conv/recompute_non_finite.hpp"
#include "cpu/memory/scratch.hpp"
#include "cpu/threads.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kTileBytes = 512 * 1024;    // packed input that stays in a core's L2 while all weights are processed
constexpr std::int64_t kChunkBytes = 768 * 1024;   // packed input and weights of a chunk of channels, also for L2
constexpr std::int64_t kResultBytes = 512 * 1024;  // results that wait for the next chunk
constexpr std::int64_t kPanelsAtOnce = 4;          // panels that share a chunk of input
constexpr std::int64_t kLeastSteps = 64;           // per register tile, so that loading and storing it takes little of the time
constexpr std::int64_t kItemsPerThread = 8;        // so that equal shares of items take nearly equal time

/// Long rows: weights are packed once for all; an item is a few tiles of one row that stay in L2 while the panels are
/// processed.
template <class E>
class ByTiles {
  using T = Compute<E>;

 public:
  explicit ByTiles(const GatherSteps<E>& steps)
      : steps_(steps), weights_(steps.shape.G * steps.panels() * steps.panel_size()) {}

  void run() const {
    const std::int64_t groups = steps_.shape.G, panels = steps_.panels(), tiles = steps_.tiles();
    parallel_for(groups * panels, worthwhile_grain(static_cast<double>(steps_.panel_size())),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     steps_.pack_panel(i / panels, i % panels, 0, steps_.shape.R, weights_.data() + i * steps_.panel_size());
                 });
    const std::int64_t rows = steps_.shape.N * groups;
    const std::int64_t fitting = kTileBytes / (steps_.tile_size() * static_cast<std::int64_t>(sizeof(T)));
    const std::int64_t sharing = rows * tiles / (kItemsPerThread * num_threads());
    const std::int64_t block = std::clamp<std::int64_t>(std::min(fitting, sharing), 1, tiles);
    const std::int64_t blocks = ceil_div(tiles, block);
    parallel_for(rows * blocks, worthwhile_grain(steps_.operations_per_tile() * static_cast<double>(block)),
                 [&](std::int64_t begin, std::int64_t end) {
                   Scratch<T> input(block * steps_.tile_size());
                   Scratch<T> results(steps_.result_size());
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t first = i % blocks * block;
                     block_of_tiles(i / blocks, first, std::min(first + block, tiles), input.data(), results.data());
                   }
                 });
  }

 private:
  void block_of_tiles(std::int64_t row, std::int64_t first, std::int64_t last, T* input, T* results) const {
    const std::int64_t n = row / steps_.shape.G, g = row % steps_.shape.G;
    steps_.pack_tiles(n, g, first, last, input);
    for (std::int64_t p = 0; p < steps_.panels(); ++p)
      for (std::int64_t t = first; t < last; ++t)
        steps_.compute(n, g, p, t, weights_.data() + (g * steps_.panels() + p) * steps_.panel_size(),
                       input + (t - first) * steps_.tile_size(), results);
  }

  const GatherSteps<E>& steps_;
  Scratch<T> weights_;  // (G, panels, panel_size)
};

/// Short rows with many weights: the input is packed once for all; an item is a few panels (read from memory once) over a share
/// of the tiles. If input and weights do not fit in L2 together, they are processed in chunks of channels, which does not
/// change the order of any sum and so not the bits.
template <class E>
class ByPanels {
  using T = Compute<E>;

 public:
  explicit ByPanels(const GatherSteps<E>& steps)
      : steps_(steps), tiles_(steps.shape.N * steps.tiles()), input_(steps.shape.G * tiles_ * steps.tile_size()) {
    // Few panels for many threads: the tiles are split too, although each part packs the panel again.
    const std::int64_t panels = steps.shape.G * steps.panels();
    parts_ = std::min(tiles_, ceil_div(2 * num_threads(), panels));
    choose_chunk(std::clamp<std::int64_t>(panels / (3 * num_threads()), 1, kPanelsAtOnce));
  }

  void run() const {
    const GatherShape& shape = steps_.shape;
    parallel_for(shape.G * tiles_, worthwhile_grain(static_cast<double>(steps_.tile_size())),
                 [&](std::int64_t begin, std::int64_t end) { pack_input(begin, end); });
    const std::int64_t together = ceil_div(steps_.panels(), panels_at_once_);
    const double operations =
        steps_.operations_per_tile() * static_cast<double>(tiles_) / static_cast<double>(together * parts_);
    parallel_for(shape.G * together * parts_, worthwhile_grain(operations), [&](std::int64_t begin, std::int64_t end) {
      Scratch<T> weights(panels_at_once_ * chunk_ * steps_.channel_weights());
      Scratch<T> results((chunked() ? panels_at_once_ * part_tiles() : 1) * steps_.result_size());
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t part = i % parts_, first = i / parts_ % together * panels_at_once_;
        const Item item = {.g = i / parts_ / together,
                           .p_first = first,
                           .p_last = std::min(first + panels_at_once_, steps_.panels()),
                           .t_first = tiles_ * part / parts_,
                           .t_last = tiles_ * (part + 1) / parts_};
        if (chunked())
          in_chunks(item, weights.data(), results.data());
        else
          at_once(item, weights.data(), results.data());
      }
    });
  }

 private:
  struct Item {
    std::int64_t g, p_first, p_last, t_first, t_last;
  };

  [[nodiscard]] bool chunked() const { return chunk_ < steps_.shape.R; }
  [[nodiscard]] std::int64_t part_tiles() const { return ceil_div(tiles_, parts_); }
  [[nodiscard]] const T* input(std::int64_t g, std::int64_t t) const {
    return input_.data() + (g * tiles_ + t) * steps_.tile_size();
  }

  // Tiles [begin, end) of all groups and samples, row by row.
  void pack_input(std::int64_t begin, std::int64_t end) const {
    const std::int64_t tiles = steps_.tiles();
    while (begin < end) {
      const std::int64_t row = begin / tiles, first = begin % tiles, last = std::min(tiles, first + end - begin);
      steps_.pack_tiles(row % steps_.shape.N, row / steps_.shape.N, first, last, input_.data() + begin * steps_.tile_size());
      begin += last - first;
    }
  }

  void choose_chunk(std::int64_t together) {
    const GatherShape& shape = steps_.shape;
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    panels_at_once_ = 1;
    chunk_ = shape.R;
    const std::int64_t per_channel = kBytes * (part_tiles() * steps_.channel_pitch() + together * steps_.channel_weights());
    const std::int64_t chunk = kChunkBytes / per_channel;
    const bool wanted = chunk < shape.R && chunk * shape.K >= kLeastSteps * shape.out_stride;
    const bool fits = together * part_tiles() * steps_.result_size() * kBytes <= kResultBytes;
    if (!wanted || !fits || shape.out_stride > GatherSteps<E>::kPhasesAtOnce) return;
    panels_at_once_ = together;
    chunk_ = ceil_div(shape.R, ceil_div(shape.R, chunk));
  }

  void at_once(const Item& item, T* weights, T* results) const {
    for (std::int64_t p = item.p_first; p < item.p_last; ++p) {
      steps_.pack_panel(item.g, p, 0, steps_.shape.R, weights);
      for (std::int64_t t = item.t_first; t < item.t_last; ++t)
        steps_.compute(t / steps_.tiles(), item.g, p, t % steps_.tiles(), weights, input(item.g, t), results);
    }
  }

  void in_chunks(const Item& item, T* weights, T* results) const {
    const std::int64_t tiles = item.t_last - item.t_first;
    const auto result = [&](std::int64_t p, std::int64_t t) {
      return results + ((p - item.p_first) * tiles + t - item.t_first) * steps_.result_size();
    };
    for (std::int64_t first = 0; first < steps_.shape.R; first += chunk_) {
      const std::int64_t last = std::min(first + chunk_, steps_.shape.R);
      for (std::int64_t p = item.p_first; p < item.p_last; ++p) {
        T* packed = weights + (p - item.p_first) * chunk_ * steps_.channel_weights();
        steps_.pack_panel(item.g, p, first, last, packed);
        for (std::int64_t t = item.t_first; t < item.t_last; ++t)
          steps_.accumulate(item.g, p, t % steps_.tiles(), first, last, packed,
                            input(item.g, t) + first * steps_.channel_pitch(), result(p, t));
      }
    }
    for (std::int64_t p = item.p_first; p < item.p_last; ++p)
      for (std::int64_t t = item.t_first; t < item.t_last; ++t)
        steps_.finish(t / steps_.tiles(), item.g, p, t % steps_.tiles(), result(p, t));
  }

  const GatherSteps<E>& steps_;
  std::int64_t tiles_;           // of one group, all samples
  Scratch<T> input_;             // (G, tiles, tile_size)
  std::int64_t parts_;           // number of shares of the tiles
  std::int64_t panels_at_once_;  // per item
  std::int64_t chunk_;           // channels per chunk
};

/// The smaller of input and weights is packed once beforehand, the other by each thread as it goes. Returns whether all weights
/// are finite.
template <class E>
bool gather(const GatherShape& shape, const void* in, const void* w, const void* bias, void* out) {
  const GatherSteps<E> steps(shape, static_cast<const E*>(in), static_cast<const E*>(w), static_cast<const E*>(bias),
                             static_cast<E*>(out));
  if (shape.N * steps.tiles() * steps.tile_size() < steps.panels() * steps.panel_size())
    ByPanels<E>(steps).run();
  else
    ByTiles<E>(steps).run();
  return steps.weights_finite();
}

}  // namespace

std::optional<std::string> phase_gemm_can_implement(const ConvProblem& problem, ConvDirection direction) {
  // Offsets within a packed tile are 32 bits; a tap takes at most two tile widths (2 * 128) of it.
  const std::int64_t limit = (std::int64_t{1} << 31) / 256;
  const std::int64_t channels = std::max(problem.channels_in_per_group(), problem.channels_out_per_group());
  if (channels > limit / problem.K) return concat("C/G * K = ", channels, " * ", problem.K, " is above ", limit);
  constexpr std::int64_t kMostPhases = 1 << 20;  // each phase has lists of its own, however short the rows
  if (direction == ConvDirection::forward && problem.S > kMostPhases)
    return concat("S = ", problem.S, " is above ", kMostPhases);
  return std::nullopt;
}

void phase_gemm_positions(const ConvProblem& problem, ConvDirection direction, std::int64_t n, std::int64_t begin,
                          std::int64_t end, const void* in, const void* w, const void* bias, void* out) {
  GatherShape shape = gather_shape(problem, direction);
  shape.N = 1;
  shape.q_first = begin;
  shape.q_count = end;
  with_element(problem, [&](auto element) {
    using E = decltype(element);
    gather<E>(shape, static_cast<const E*>(in) + n * shape.R * shape.in_length, w, bias,
              static_cast<E*>(out) + n * shape.M * shape.out_length);
  });
}

void phase_gemm_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w, const void* bias,
                       void* out) {
  const GatherShape shape = gather_shape(problem, direction);
  if (shape.N == 0 || shape.M == 0 || shape.q_count == 0) return;
  bool finite = true;
  with_element(problem, [&](auto element) { finite = gather<decltype(element)>(shape, in, w, bias, out); });
  if (!finite) recompute_at_ends(problem, direction, in, w, bias, out);
}

}  // namespace polyphase::cpu
