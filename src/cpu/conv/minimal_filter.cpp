#include "cpu/conv/minimal_filter.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/conv/minimal_plan.hpp"
#include "cpu/conv/phase_gemm.hpp"
#include "cpu/conv/phase_plan.hpp"
#include "cpu/conv/tiling.hpp"
#include "cpu/memory/scratch.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kTallest = std::int64_t{1} << (kPanelKinds - 1);
constexpr std::int64_t kWindow = 6;    // positions that a group of taps adds
constexpr double kLeastSpread = 16;    // of equal products that a window has; errors exceed the tests' limit only below 8
constexpr double kLikeMagnitudes = 8;  // largest ratio of the sums of magnitudes of two taps of an output
constexpr double kLargestOverProducts = 1.5;  // sum of magnitudes of a position over that of an output's products
constexpr double kLeastSquare = 1e-30;        // sums of squares outside would lose digits, or overflow
constexpr double kMostSquare = 1e30;

/// How the weights of the outputs are spread.
struct WeightSpread {
  double share = 1;  ///< the least, over outputs, of (sum |w|)^2 / sum w^2 / (number of weights)
  bool in_range = true;
  std::vector<double> taps;  ///< (K) the least, over outputs, of a tap's sum of magnitudes over that of the largest tap

  explicit WeightSpread(std::int64_t K) : taps(static_cast<std::size_t>(K), 1) {}
  void add(const WeightSpread& other) {
    share = std::min(share, other.share);
    in_range = in_range && other.in_range;
    for (std::size_t k = 0; k < taps.size(); ++k) taps[k] = std::min(taps[k], other.taps[k]);
  }
};

/// The spread of `height` outputs from their packed weights (R, K, height).
template <int height>
WeightSpread spread_of(const float* taps, std::int64_t R, std::int64_t K) {
  std::vector<double> magnitudes(static_cast<std::size_t>(K * height));  // (K, height)
  double squares[height] = {};
  for (std::int64_t c = 0; c < R; ++c)
    for (std::int64_t i = 0; i < K * height; i += height, taps += height)
      for (int m = 0; m < height; ++m) {
        const auto value = static_cast<double>(taps[m]);
        magnitudes[static_cast<std::size_t>(i + m)] += std::abs(value);
        squares[m] += value * value;
      }
  WeightSpread spread(K);
  for (int m = 0; m < height; ++m) {
    const auto of = [&](std::size_t k) { return magnitudes[k * height + static_cast<std::size_t>(m)]; };
    double sum = 0, most = 0;
    for (std::size_t k = 0; k < spread.taps.size(); ++k) {
      sum += of(k);
      most = std::max(most, of(k));
    }
    if (sum == 0) continue;
    spread.share = std::min(spread.share, sum * sum / squares[m] / static_cast<double>(R * K));
    spread.in_range = spread.in_range && squares[m] > kLeastSquare && squares[m] < kMostSquare;
    for (std::size_t k = 0; k < spread.taps.size(); ++k) spread.taps[k] = std::min(spread.taps[k], of(k) / most);
  }
  return spread;
}

/// The transformed weights of `height` outputs, in the order of the sums; of each sum in the order (channel, product, output).
template <int height>
void transform(const MinimalPlan& plan, const float* taps, std::int64_t R, std::int64_t K, float* to) {
  for (const MinimalPart& part : plan.parts)
    for (const auto& products : part.products)
      for (std::int64_t c = 0; c < R; ++c)
        for (const MinimalProduct& product : products) {
          double sums[height] = {};
          for (const auto& [tap, factor] : product.weights) {
            const float* from = taps + (c * K + plan.order[static_cast<std::size_t>(tap)]) * height;
            for (int m = 0; m < height; ++m) sums[m] += static_cast<double>(factor) * static_cast<double>(from[m]);
          }
          for (int m = 0; m < height; ++m) *to++ = static_cast<float>(sums[m]);
        }
}

class MinimalFilter {
 public:
  MinimalFilter(const GatherShape& shape, std::int64_t D, const float* in, const float* w, const float* bias, float* out)
      : shape_(shape),
        D_(D),
        gemm_(gemm_kernels<float>()),
        kernels_(minimal_kernels()),
        pack_(pack_kernels<float>()),
        panels_(make_panels(shape.M, gemm_.widest)),
        vectors_(gemm_.widest[panels_.front().kind]),
        plan_(minimal_plan(shape, D, std::int64_t{vectors_} * gemm_.lanes, gemm_.lanes)),
        tiles_(ceil_div(shape.q_count, plan_.outputs())),
        in_(in),
        bias_(bias),
        out_(out),
        weights_(panel_count() * panel_size()),
        spread_(shape.K) {
    place_products();
    pack_weights(w);
  }

  /// Whether the weights allow it.
  [[nodiscard]] bool is_accurate() const {
    return spread_.in_range && spread_.share * static_cast<double>(shape_.R * window()) >= kLeastSpread &&
           kLikeMagnitudes * *std::min_element(spread_.taps.begin(), spread_.taps.end()) >= 1;
  }

  /// Tiles of all samples that are left to gemm.
  [[nodiscard]] std::vector<char> run() const {
    std::vector<char> left(static_cast<std::size_t>(shape_.N * tiles_));
    parallel_for(shape_.N * tiles_, 1, [&](std::int64_t begin, std::int64_t end) {
      Scratch<float> packed(shape_.R * channel_size());
      Scratch<float> results(shape_.M * kPartResults * plan_.width + 8 * kTallest * plan_.width + plan_.sequence_pitch);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t n = i / tiles_, t = i % tiles_;
        if (pack_tile(n, t, packed.data()))
          compute(n, t, packed.data(), results.data());
        else
          left[static_cast<std::size_t>(i)] = 1;
      }
    });
    return left;
  }
  [[nodiscard]] std::int64_t tiles() const { return tiles_; }
  [[nodiscard]] std::int64_t outputs() const { return plan_.outputs(); }

 private:
  static constexpr std::int64_t kPrefetchChannels = 2;
  static constexpr std::int64_t kPartResults = 4;  // rows per output channel that wait for the last part

  [[nodiscard]] std::int64_t panel_count() const { return static_cast<std::int64_t>(panels_.size()); }
  [[nodiscard]] std::int64_t panel_size() const { return shape_.R * plan_.multiplications() * panels_.front().height; }
  [[nodiscard]] std::int64_t window() const { return std::min(shape_.K, kWindow); }
  [[nodiscard]] std::int64_t channel_size() const {
    std::int64_t size = 0;
    for (const MinimalPart& part : plan_.parts) size += part.pitch;
    return size;
  }

  // The elements of a tile in one channel are a short run far from the next, so the hardware does not prefetch them.
  void prefetch(const float* channel, std::int64_t first) const {
    constexpr std::int64_t kLine = 64 / sizeof(float);
    const std::int64_t end = std::min(first + plan_.line, shape_.in_length);
    for (std::int64_t i = std::max<std::int64_t>(first, 0); i < end; i += kLine) __builtin_prefetch(channel + i);
  }

  void place_products() {
    for (const MinimalPart& part : plan_.parts)
      for (const auto& products : part.products) {
        std::vector<std::int32_t> offsets;
        for (std::int64_t c = 0; c < shape_.R; ++c)
          for (const MinimalProduct& product : products)
            offsets.push_back(static_cast<std::int32_t>(c * part.pitch + product.offset));
        offsets.resize(offsets.size() + kOffsetSlack);
        offsets_.push_back(std::move(offsets));
      }
  }

  void pack_weights(const float* w) {
    std::vector<WeightSpread> spreads(panels_.size(), WeightSpread(shape_.K));
    parallel_for(
        panel_count(), worthwhile_grain(static_cast<double>(4 * panel_size())), [&](std::int64_t begin, std::int64_t end) {
          Scratch<float> taps(shape_.R * shape_.K * kTallest);
          for (std::int64_t p = begin; p < end; ++p) {
            const Panel& panel = panels_[static_cast<std::size_t>(p)];
            for (std::int64_t c = 0; c < shape_.R; ++c)
              pack_.transpose(w + panel.first * shape_.w_row + c * shape_.w_channel, shape_.w_row, panel.rows, panel.height,
                              shape_.K, nullptr, taps.data() + c * shape_.K * panel.height, panel.height);
            const auto prepare = [&](auto height) {
              spreads[static_cast<std::size_t>(p)] = spread_of<height.value>(taps.data(), shape_.R, shape_.K);
              transform<height.value>(plan_, taps.data(), shape_.R, shape_.K, weights_.data() + p * panel_size());
            };
            switch (panel.height) {
              case 8:
                prepare(std::integral_constant<int, 8>{});
                break;
              case 4:
                prepare(std::integral_constant<int, 4>{});
                break;
              case 2:
                prepare(std::integral_constant<int, 2>{});
                break;
              default:
                prepare(std::integral_constant<int, 1>{});
            }
          }
        });
    for (const WeightSpread& spread : spreads) spread_.add(spread);
  }

  /// (parts, R, rows) of tile t. False if the errors could be too large.
  [[nodiscard]] bool pack_tile(std::int64_t n, std::int64_t t, float* to) const {
    const std::int64_t columns = plan_.outputs() + (shape_.K - 1) * D_, padded = ceil_div(columns, gemm_.lanes) * gemm_.lanes;
    const std::int64_t slack = 4 * std::int64_t{gemm_.lanes} + kRunSlack;
    Scratch<float> work(plan_.line + slack + 2 * padded + plan_.sequences * plan_.sequence_pitch);
    float *line = work.data(), *sums = line + plan_.line + slack, *squares = sums + padded, *sequences = squares + padded;
    std::fill(line + plan_.line, sequences, 0.0F);
    const std::int64_t first = t * plan_.outputs() + plan_.first;
    const float* from = in_ + n * shape_.R * shape_.in_length;
    for (std::int64_t c = 0; c < shape_.R; ++c, from += shape_.in_length) {
      if (c + kPrefetchChannels < shape_.R) prefetch(from + kPrefetchChannels * shape_.in_length, first);
      pack_.gather_row(from, shape_.in_length, first, 1, line, plan_.line);
      kernels_.add_magnitudes(line, columns, sums, squares);
      kernels_.split(line, plan_.phases, D_, plan_.sequence, sequences, plan_.sequence_pitch);
      kernels_.combine(plan_.sums.data(), static_cast<std::int64_t>(plan_.sums.size()), sequences, sequences, plan_.sum_count);
      float* part_to = to;
      for (const MinimalPart& part : plan_.parts) {
        kernels_.combine(part.rows.data(), static_cast<std::int64_t>(part.rows.size()), sequences, part_to + c * part.pitch,
                         plan_.row);
        part_to += shape_.R * part.pitch;
      }
    }
    const std::int64_t outputs = std::min(plan_.outputs(), shape_.q_count - t * plan_.outputs());
    return is_spread(sums, squares, outputs + (shape_.K - 1) * D_) && is_like(sums, outputs);
  }

  [[nodiscard]] bool is_spread(const float* sums, const float* squares, std::int64_t columns) const {
    const std::int64_t span = (window() - 1) * D_;
    bool all = true;
    for (std::int64_t p = 0; p + span < columns; ++p) {
      double sum = 0, square = 0;
      for (std::int64_t j = p; j <= p + span; j += D_) {
        sum += static_cast<double>(sums[j]);
        square += static_cast<double>(squares[j]);
      }
      const bool in_range = square > kLeastSquare && square < kMostSquare;  // no NaN is
      const bool good = in_range && sum * sum * spread_.share >= kLeastSpread * square;
      all = all && (good || (sum == 0 && square == 0));
    }
    return all;
  }

  /// Whether the magnitudes of each output's products are not far below those of its largest position and tap.
  [[nodiscard]] bool is_like(const float* sums, std::int64_t outputs) const {
    bool all = true;
    for (std::int64_t p = 0; p < outputs; ++p) {
      double products = 0, most = 0;
      for (std::int64_t k = 0; k < shape_.K; ++k) {
        const auto magnitude = static_cast<double>(sums[p + k * D_]);
        products += magnitude * spread_.taps[static_cast<std::size_t>(plan_.order[static_cast<std::size_t>(k)])];
        most = std::max(most, magnitude);
      }
      all = all && most <= kLargestOverProducts * products;
    }
    return all;
  }

  void compute(std::int64_t n, std::int64_t t, const float* packed, float* results) const {
    const std::int64_t width = plan_.width, height = panels_.front().height;
    float* products = results + shape_.M * kPartResults * width;  // (4, height, width)
    float* last = products + 4 * kTallest * width;                // two or four rows, and what merge reads after them
    std::size_t sum = 0;
    std::int64_t before = 0;
    for (std::size_t k = 0; k < plan_.parts.size(); ++k, sum += 4) {
      const MinimalPart& part = plan_.parts[k];
      std::int64_t steps = 0;
      for (std::int64_t p = 0; p < panel_count(); ++p) {
        const Panel& panel = panels_[static_cast<std::size_t>(p)];
        const float* w = weights_.data() + p * panel_size() + before * panel.height;
        steps = 0;
        for (std::size_t i = 0; i < 4; ++i) {
          const auto count = shape_.R * static_cast<std::int64_t>(part.products[i].size());
          // The second sum is added to both outputs of a part, and those of the second part to all four.
          const bool starts = i == 1 && k == plan_.parts.size() / 2;
          start_and_sum(panel, starts, w + steps * panel.height, packed, offsets_[sum + i], count,
                        products + static_cast<std::int64_t>(i) * height * width);
          steps += count;
        }
        for (std::int64_t m = 0; m < panel.rows; ++m) {
          float* waiting = results + (panel.first + m) * kPartResults * width;
          const bool is_last = k + 1 == plan_.parts.size();
          float* two = is_last ? last : waiting + static_cast<std::int64_t>(k) * 2 * width;
          kernels_.two_outputs(products + m * width, height * width, width, two);
          if (is_last) write(n, t, panel.first + m, waiting, last);
        }
      }
      before += steps;
      packed += shape_.R * part.pitch;
    }
  }

  void start_and_sum(const Panel& panel, bool starts, const float* w, const float* x, const std::vector<std::int32_t>& offsets,
                     std::int64_t count, float* to) const {
    float start[kTallest] = {};
    for (std::int64_t m = 0; starts && bias_ != nullptr && m < panel.rows; ++m) start[m] = bias_[panel.first + m];
    gemm_.micro[panel.kind][vectors_](w, x, offsets.data(), count, start, to, plan_.width);
  }

  void write(std::int64_t n, std::int64_t t, std::int64_t m, const float* waiting, float* last) const {
    const std::int64_t width = plan_.width, done = t * plan_.outputs();
    const float* rows = last;
    if (plan_.phases == 4) {
      kernels_.four_outputs(waiting, waiting + 2 * width, last, width, last + 2 * width);
      rows = last + 2 * width;
    }
    const std::int64_t count = std::min(plan_.outputs(), shape_.out_length - done);
    float* to = out_ + (n * shape_.M + m) * shape_.out_length + done;
    if (D_ == 1)
      pack_.interleave(rows, width, plan_.phases, plan_.phases, plan_.lanes_used, count, to);
    else
      kernels_.merge(rows, width, plan_.phases, D_, plan_.lanes_used, count, to);
  }

  const GatherShape& shape_;
  std::int64_t D_;
  const GemmKernels<float>& gemm_;
  const MinimalKernels& kernels_;
  const PackKernels<float>& pack_;
  std::vector<Panel> panels_;
  int vectors_;  // of a register tile
  MinimalPlan plan_;
  std::int64_t tiles_;  // per sample
  const float* in_;
  const float* bias_;
  float* out_;
  Scratch<float> weights_;  // (panels, panel_size)
  WeightSpread spread_;
  std::vector<std::vector<std::int32_t>> offsets_;  // (4*parts, R*products + slack) within a part of a packed tile
};

std::int64_t tile_width(const GatherShape& shape) {
  const GemmKernels<float>& gemm = gemm_kernels<float>();
  return std::int64_t{gemm.widest[make_panels(shape.M, gemm.widest).front().kind]} * gemm.lanes;
}

}  // namespace

bool minimal_filter_can_implement(const ConvProblem& problem, ConvDirection direction) {
  if (direction == ConvDirection::wgrad || problem.dtype != DType::f32 || problem.S != 1 || problem.G != 1) return false;
  const GatherShape shape = gather_shape(problem, direction);
  if (shape.N == 0 || shape.M == 0 || shape.R == 0 || shape.q_count == 0) return false;
  return has_minimal_plan(shape, problem.D, tile_width(shape)) && !phase_gemm_can_implement(problem, direction);
}

bool minimal_filter_pays(const ConvProblem& problem, ConvDirection direction) {
  if (!minimal_filter_can_implement(problem, direction)) return false;
  const GatherShape shape = gather_shape(problem, direction);
  // Each packed number is used M times; each sum has R*K products. With 32 channels the packing takes as long as it saves.
  constexpr std::int64_t kChannels = 64, kChannelsOfThreeTaps = 128, kTiles = 8;
  const std::int64_t channels = shape.K < 5 ? kChannelsOfThreeTaps : kChannels, width = tile_width(shape);
  const std::int64_t used = width / problem.D * problem.D;
  return shape.M >= channels && shape.R >= channels && shape.q_count >= kTiles * 4 * width && used * 5 >= width * 4;
}

std::int64_t minimal_filter_gather(const ConvProblem& problem, ConvDirection direction, const void* in, const void* w,
                                   const void* bias, void* out) {
  const GatherShape shape = gather_shape(problem, direction);
  const MinimalFilter filter(shape, problem.D, static_cast<const float*>(in), static_cast<const float*>(w),
                             static_cast<const float*>(bias), static_cast<float*>(out));
  if (!filter.is_accurate()) {
    phase_gemm_gather(problem, direction, in, w, bias, out);
    return shape.N * shape.q_count;
  }
  const std::vector<char> left = filter.run();
  std::int64_t positions = 0;
  for (std::int64_t n = 0; n < shape.N; ++n)
    for (std::int64_t t = 0; t < filter.tiles(); ++t) {
      const std::int64_t first = t;
      while (t < filter.tiles() && left[static_cast<std::size_t>(n * filter.tiles() + t)] != 0) ++t;
      if (t == first) continue;
      const std::int64_t begin = first * filter.outputs(), end = std::min(t * filter.outputs(), shape.q_count);
      phase_gemm_positions(problem, direction, n, begin, end, in, w, bias, out);
      positions += end - begin;
    }
  return positions;
}

}  // namespace polyphase::cpu
