#include "networks/blocks/segment_overlap.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "ops/length.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::networks;
using namespace polyphase::testing;

namespace {

// The original's loop over whole rows.
std::vector<double> plain_overlap(const std::vector<Tensor>& segments, std::size_t stride) {
  const auto first = static_cast<std::size_t>(segments.front().size(2));
  const std::size_t length = stride * (segments.size() - 1) + static_cast<std::size_t>(segments.back().size(2));
  std::vector<double> sum(length, 0), weights(length, 0);
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const std::vector<double> values = segments[s].to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double w = 0.5 - std::abs(static_cast<double>(i + 1) / static_cast<double>(first + 1) - 0.5);
      sum[s * stride + i] += w * values[i];
      weights[s * stride + i] += w;
    }
  }
  for (std::size_t i = 0; i < length; ++i) sum[i] /= weights[i];
  return sum;
}

Tensor joined(const std::vector<Tensor>& segments, std::int64_t stride) {
  SegmentOverlap overlap(stride);
  std::vector<Tensor> pieces;
  for (const Tensor& segment : segments) pieces.push_back(overlap.add(segment));
  pieces.push_back(overlap.finish());
  return cat(pieces, 2);
}

}  // namespace

TEST_CASE("segments overlap with triangular weights, for any length of the last one") {
  for (const std::int64_t last : {20, 11, 7, 5}) {
    const std::vector<Tensor> segments{random_f64({1, 1, 20}, 1), random_f64({1, 1, 20}, 2), random_f64({1, 1, last}, 3)};
    const Tensor got = joined(segments, 16);
    CHECK(max_difference(got, Tensor::from_vector(plain_overlap(segments, 16), got.shape())) < kDoubleRounding);
  }
  const std::vector<Tensor> one{random_f64({1, 1, 9}, 1)};
  CHECK(max_difference(joined(one, 16), one[0]) < kDoubleRounding);
  const std::vector<Tensor> many{random_f64({1, 1, 20}, 1), random_f64({1, 1, 20}, 2), random_f64({1, 1, 20}, 3)};
  const Tensor dense = joined(many, 6);  // three at a time
  CHECK(max_difference(dense, Tensor::from_vector(plain_overlap(many, 6), dense.shape())) < kDoubleRounding);
}

TEST_CASE("a last segment that ends before the one in front of it drops nothing") {
  const std::vector<Tensor> segments{Tensor::ones({1, 1, 20}), Tensor::ones({1, 1, 2})};
  const Tensor got = joined(segments, 16);
  CHECK(got.size(2) == 20);
  CHECK(max_difference(got, Tensor::ones({1, 1, 20})) < kFloatRounding);
}

TEST_CASE("audio is returned once no segment changes it, with gradients") {
  SegmentOverlap overlap(16);
  CHECK(overlap.add(random_f64({2, 3, 20})).shape() == Shape{2, 3, 16});
  CHECK(overlap.add(random_f64({2, 3, 20})).shape() == Shape{2, 3, 16});
  CHECK(overlap.finish().shape() == Shape{2, 3, 4});
  overlap.reset();
  CHECK(overlap.add(random_f64({2, 3, 5})).shape() == Shape{2, 3, 5});
  CHECK(gradcheck([](const std::vector<Tensor>& x) { return joined(x, 4); },
                  {leaf_f64({2, 1, 6}, 1), leaf_f64({2, 1, 6}, 2), leaf_f64({2, 1, 3}, 3)}) == "");
}

TEST_CASE("segments that do not go together are refused in words") {
  SegmentOverlap overlap(16);
  CHECK(error_of<Error>([&] { return overlap.finish(); }) == "overlap: expected at least one segment");
  static_cast<void>(overlap.add(random_f64({1, 1, 20})));
  CHECK(error_of<ShapeError>([&] {
          return overlap.add(random_f64({1, 1, 21}));
        }) == "overlap: expected segments of at most 20 samples, as the first has, got 21");
  static_cast<void>(overlap.add(random_f64({1, 1, 15})));
  CHECK(error_of<ShapeError>([&] {
          return overlap.add(random_f64({1, 1, 20}));
        }) == "overlap: expected segments of at least 16 samples but for the last");
}
