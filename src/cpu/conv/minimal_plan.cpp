#include "cpu/conv/minimal_plan.hpp"

#include <algorithm>
#include <cstddef>

#include "cpu/conv/tiling.hpp"

namespace polyphase::cpu {
namespace {

using Weights = std::vector<std::pair<std::int64_t, float>>;

constexpr std::int64_t kMostTaps = 32;

Weights scaled(Weights weights, float factor) {
  for (auto& [tap, value] : weights) value *= factor;
  return weights;
}

Weights sum(Weights a, const Weights& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// An input of a part: a sequence from `shift` blocks of D on.
struct Input {
  std::int64_t sequence, shift;
};

/// Collects the rows and products of one part. Offsets are in blocks of D or numbers of rows until place() knows the sizes.
class PartBuilder {
 public:
  /// sum += (a + sign*b) * weights; a sign of 0 is a alone.
  void add(std::int64_t sum, Input a, Input b, float sign, const Weights& weights) {
    const std::int64_t shift = std::min(a.shift, b.shift);
    products_.push_back({sum, row_of({a.sequence, a.shift - shift, b.sequence, b.shift - shift, sign}), shift, weights});
    most_ = std::max(most_, shift);
  }

  /// The taps `weights`, neighbours, of the sequence whose elements are alternately those of `even` and `odd`.
  void add_taps(std::int64_t even, std::int64_t odd, const std::vector<Weights>& taps) {
    const auto count = static_cast<std::int64_t>(taps.size());
    const auto tap = [&](std::int64_t j) { return taps[static_cast<std::size_t>(j)]; };
    const auto d = [&](std::int64_t n) { return Input{n % 2 == 0 ? even : odd, n / 2}; };
    std::int64_t j = 0;
    for (; j + 3 <= count; j += 3) {
      const Weights outer = sum(tap(j), tap(j + 2));
      add(0, d(j), d(j + 2), -1, tap(j));
      add(1, d(j + 1), d(j + 2), 1, scaled(sum(outer, tap(j + 1)), 0.5F));
      add(2, d(j + 2), d(j + 1), -1, scaled(sum(outer, scaled(tap(j + 1), -1)), 0.5F));
      add(3, d(j + 1), d(j + 3), -1, tap(j + 2));
    }
    if (count - j == 2) {
      add(0, d(j + 1), d(j), -1, scaled(tap(j), -1));
      add(1, d(j + 1), d(j + 1), 0, sum(tap(j), tap(j + 1)));
      add(3, d(j + 2), d(j + 1), -1, scaled(tap(j + 1), -1));
    } else if (count - j == 1) {
      add(0, d(j), d(j), 0, tap(j));
      add(3, d(j + 1), d(j + 1), 0, scaled(tap(j), -1));
    }
  }

  [[nodiscard]] std::int64_t most_shift() const { return most_; }

  [[nodiscard]] MinimalPart place(std::int64_t D, std::int64_t sequence_pitch, std::int64_t row) const {
    MinimalPart part;
    for (const Row& r : rows_) {
      part.rows.push_back({.to = part.pitch,
                           .a = r.a * sequence_pitch + r.a_shift * D,
                           .b = r.b * sequence_pitch + r.b_shift * D,
                           .sign = r.sign});
      part.pitch += row;
    }
    for (const Product& p : products_) part.products[p.sum].push_back({p.row * row + p.shift * D, p.weights});
    return part;
  }

 private:
  struct Row {
    std::int64_t a, a_shift, b, b_shift;
    float sign;
    bool operator==(const Row&) const = default;
  };
  struct Product {
    std::int64_t sum, row, shift;
    Weights weights;
  };

  std::int64_t row_of(const Row& row) {
    const auto found = std::find(rows_.begin(), rows_.end(), row);
    const auto index = static_cast<std::int64_t>(found - rows_.begin());
    if (found == rows_.end()) rows_.push_back(row);
    return index;
  }

  std::vector<Row> rows_;
  std::vector<Product> products_;
  std::int64_t most_ = 0;
};

// The sequences of four phases: four of the line; then e0 - e1 and e1 - e2, each as its even and its odd elements.
constexpr std::int64_t kFirstEven = 4, kFirstOdd = 5, kLastEven = 6, kLastOdd = 7, kSequences = 8;

void add_four_phases(std::int64_t K, std::vector<PartBuilder>& parts) {
  std::vector<Weights> even, odd, both;
  for (std::int64_t j = 0; j < K / 2; ++j) {
    even.push_back({{2 * j, 1.0F}});
    odd.push_back({{2 * j + 1, 1.0F}});
    both.push_back(sum(even.back(), odd.back()));
  }
  parts[0].add_taps(kFirstEven, kFirstOdd, even);
  parts[1].add_taps(1, 3, both);
  parts[2].add_taps(kLastEven, kLastOdd, odd);
  if (K % 2 == 0) return;
  const auto d = [&](std::int64_t b) { return Input{(K - 1 + b) % 4, (K - 1 + b) / 4}; };
  const Weights last = {{K - 1, 1.0F}}, negative = {{K - 1, -1.0F}};
  parts[0].add(0, d(0), d(0), 0, last);
  parts[2].add(0, d(1), d(1), 0, negative);
  parts[0].add(3, d(2), d(2), 0, negative);
  parts[2].add(3, d(3), d(3), 0, last);
}

void add_two_phases(std::int64_t K, std::vector<PartBuilder>& parts) {
  std::vector<Weights> taps;
  for (std::int64_t k = 0; k < K; ++k) taps.push_back({{k, 1.0F}});
  parts[0].add_taps(0, 1, taps);
}

}  // namespace

std::int64_t MinimalPlan::multiplications() const {
  std::size_t count = 0;
  for (const MinimalPart& part : parts)
    for (const auto& products : part.products) count += products.size();
  return static_cast<std::int64_t>(count);
}

bool has_minimal_plan(const GatherShape& shape, std::int64_t D, std::int64_t width) {
  const bool counts = shape.K == 3 || (shape.K >= 5 && shape.K <= kMostTaps);
  return shape.in_stride == 1 && shape.out_stride == 1 && shape.G == 1 && counts && D <= width &&
         D * (shape.K + 3) <= 2 * width;
}

MinimalPlan minimal_plan(const GatherShape& shape, std::int64_t D, std::int64_t width, std::int64_t lanes) {
  MinimalPlan plan{};
  std::vector<Tap> taps = shape.phases[0];
  std::sort(taps.begin(), taps.end(), [](const Tap& a, const Tap& b) { return a.shift < b.shift; });
  for (const Tap& tap : taps) plan.order.push_back(tap.k);
  plan.first = taps.front().shift;
  plan.phases = shape.K < 5 ? 2 : 4;
  plan.width = width;
  plan.lanes_used = width / D * D;
  std::vector<PartBuilder> parts(plan.phases == 4 ? 3 : 1);
  plan.phases == 4 ? add_four_phases(shape.K, parts) : add_two_phases(shape.K, parts);
  std::int64_t most = 0;
  for (const PartBuilder& part : parts) most = std::max(most, part.most_shift());
  const auto whole = [&](std::int64_t count) { return ceil_div(count, lanes) * lanes; };
  plan.row = whole(width + most * D);
  plan.sum_count = whole(plan.row + D);
  plan.sequence = whole(plan.sum_count + D);
  plan.sequence_pitch = whole(plan.sequence + D + kRunSlack);
  plan.line = plan.phases * D * ceil_div(plan.sequence, D);
  plan.sequences = plan.phases;
  if (plan.phases == 4) {
    plan.sequences = kSequences;
    const auto add = [&](std::int64_t to, std::int64_t a, std::int64_t b, std::int64_t b_shift) {
      const std::int64_t pitch = plan.sequence_pitch;
      plan.sums.push_back({.to = to * pitch, .a = a * pitch, .b = b * pitch + b_shift * D, .sign = -1});
    };
    add(kFirstEven, 0, 1, 0);
    add(kFirstOdd, 2, 3, 0);
    add(kLastEven, 1, 2, 0);
    add(kLastOdd, 3, 0, 1);
  }
  for (const PartBuilder& part : parts) plan.parts.push_back(part.place(D, plan.sequence_pitch, plan.row));
  return plan;
}

}  // namespace polyphase::cpu
