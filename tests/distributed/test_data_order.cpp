#include "distributed/data_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::distributed;

namespace {

using Indices = std::vector<std::int64_t>;

Indices epoch_of(DataOrder& order, std::int64_t epoch) {
  Indices all;
  for (std::int64_t step = 0; step < order.steps_per_epoch(); ++step) {
    const Indices batch = order.indices(epoch * order.steps_per_epoch() + step);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  return all;
}

}  // namespace

TEST_CASE("data order: an epoch has every sample at most once, in an order of its own") {
  DataOrder order({.samples = 103, .batch = 8, .seed = 3});
  CHECK(order.steps_per_epoch() == 12);
  CHECK(order.epoch(11) == 0);
  CHECK(order.epoch(12) == 1);
  Indices first = epoch_of(order, 0), second = epoch_of(order, 1);
  CHECK(first.size() == 96);
  CHECK(first != second);
  std::sort(first.begin(), first.end());
  CHECK(std::adjacent_find(first.begin(), first.end()) == first.end());
  CHECK(first.front() >= 0);
  CHECK(first.back() < 103);
  DataOrder other({.samples = 103, .batch = 8, .seed = 4}), same({.samples = 103, .batch = 8, .seed = 3});
  CHECK(other.indices(5) != order.indices(5));
  CHECK(same.indices(5) == order.indices(5));  // a step needs none before it
}

TEST_CASE("data order: the ranks of any world share a step's batch") {
  DataOrder order({.samples = 50, .batch = 12});
  for (const int world : {1, 2, 3, 4}) {
    Indices all;
    for (int rank = 0; rank < world; ++rank) {
      const Indices share = order.indices(7, rank, world);
      CHECK(share.size() == static_cast<std::size_t>(12 / world));
      all.insert(all.end(), share.begin(), share.end());
    }
    CHECK(all == order.indices(7));
  }
}

TEST_CASE("data order: without shuffling samples follow each other") {
  DataOrder order({.samples = 10, .batch = 5, .shuffle = false});
  CHECK(order.indices(1) == Indices{5, 6, 7, 8, 9});
  CHECK(order.indices(2) == Indices{0, 1, 2, 3, 4});
}

TEST_CASE("data order: what does not fit is refused") {
  CHECK_THROWS_WITH_AS(DataOrder({.samples = 3, .batch = 4}), "DataOrder: expected a batch from 1 to samples=3, got 4",
                       ShapeError);
  DataOrder order({.samples = 10, .batch = 4});
  CHECK_THROWS_WITH_AS((void)order.indices(0, 0, 3), "DataOrder: expected a batch that world=3 divides, got 4", ShapeError);
  CHECK_THROWS_WITH_AS((void)order.indices(0, 2, 2), "DataOrder: expected a rank from 0 to 1, got 2", ShapeError);
}
