#pragma once
// Which samples a rank reads in which step.

#include <cstdint>
#include <vector>

namespace polyphase::distributed {

struct DataOrderOptions {
  std::int64_t samples = 0;  ///< of the data set, required
  std::int64_t batch = 0;    ///< samples of a step over all ranks, required
  std::uint64_t seed = 0;
  bool shuffle = true;  ///< a new order every epoch; else 0, 1, 2, ...
};

/// A fixed order of the samples: every epoch is a permutation that depends on (seed, epoch) only, cut into batches; samples at
/// its end that do not fill a batch are left out. A step's samples are a function of its number, so a run that continues needs
/// no state, and the batches are the same with any number of ranks.
class DataOrder {
 public:
  /// Throws ShapeError unless 1 <= batch <= samples.
  explicit DataOrder(const DataOrderOptions& options);

  [[nodiscard]] std::int64_t steps_per_epoch() const { return options_.samples / options_.batch; }
  [[nodiscard]] std::int64_t epoch(std::int64_t step) const { return step / steps_per_epoch(); }
  /// The samples of `step` >= 0, batch/world of them for each rank: rank 0 has the first ones. Throws ShapeError unless world
  /// divides the batch.
  [[nodiscard]] std::vector<std::int64_t> indices(std::int64_t step, int rank = 0, int world = 1);

 private:
  void make_permutation(std::int64_t epoch);

  DataOrderOptions options_;
  std::int64_t made_for_ = -1;  // the epoch of permutation_
  std::vector<std::int64_t> permutation_;
};

}  // namespace polyphase::distributed
