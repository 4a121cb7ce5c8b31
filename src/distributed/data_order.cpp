#include "distributed/data_order.hpp"

#include <numeric>
#include <utility>

#include "tensor/error.hpp"
#include "tensor/random.hpp"

namespace polyphase::distributed {

DataOrder::DataOrder(const DataOrderOptions& options) : options_(options) {
  require<ShapeError>(options.samples >= 1, "DataOrder: expected at least one sample, got ", options.samples);
  require<ShapeError>(options.batch >= 1 && options.batch <= options.samples,
                      "DataOrder: expected a batch from 1 to samples=", options.samples, ", got ", options.batch);
}

std::vector<std::int64_t> DataOrder::indices(std::int64_t step, int rank, int world) {
  require<ShapeError>(step >= 0, "DataOrder: expected a step >= 0, got ", step);
  require<ShapeError>(world >= 1 && options_.batch % world == 0, "DataOrder: expected a batch that world=", world,
                      " divides, got ", options_.batch);
  require<ShapeError>(rank >= 0 && rank < world, "DataOrder: expected a rank from 0 to ", world - 1, ", got ", rank);
  make_permutation(epoch(step));
  const std::int64_t share = options_.batch / world;
  const auto begin = permutation_.begin() + step % steps_per_epoch() * options_.batch + rank * share;
  return {begin, begin + share};
}

// Fisher and Yates, as in Knuth, TAOCP 2, 3.4.2, algorithm P.
void DataOrder::make_permutation(std::int64_t epoch) {
  if (epoch == made_for_) return;
  permutation_.resize(static_cast<std::size_t>(options_.samples));
  std::iota(permutation_.begin(), permutation_.end(), 0);
  made_for_ = epoch;
  if (!options_.shuffle) return;
  // A stream of its own for every epoch: the generator's words are a function of (seed, offset).
  Generator generator;
  generator.set_state({.seed = options_.seed, .offset = static_cast<std::uint64_t>(epoch) << 40U});
  for (std::int64_t i = options_.samples - 1; i > 0; --i)
    std::swap(permutation_[static_cast<std::size_t>(i)], permutation_[static_cast<std::size_t>(generator.integer(i + 1))]);
}

}  // namespace polyphase::distributed
