#pragma once
// Random windows, prepared by a separate thread so that the training does not wait for them.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "training/batch.hpp"
#include "training/clip.hpp"
#include "training/transport.hpp"

namespace training {

struct LoaderOptions {
  std::int64_t batch = 8;         ///< N
  std::int64_t window = 4096;     ///< samples of the target, a multiple of the factor
  std::int64_t context_left = 0;  ///< low-rate samples around the window that affect its output
  std::int64_t context_right = 0;
  int factor = 4;  ///< 1: batches have no low-rate input
  std::uint64_t seed = 0;
  std::int64_t rank = 0;  ///< of `world` loaders with a batch each, whose rows together are those of one with all rows
  std::int64_t world = 1;
  std::size_t queue = 4;  ///< batches prepared in advance
};

/// The batch of a step: a pure function of the clips, the options and the step. Windows are uniform over all sound.
[[nodiscard]] Batch make_batch(const ClipSet& clips, const LoaderOptions& options, std::int64_t step);

/// Prepares the batches of steps first, first + 1, ... in advance and sends them to the training device. The clips must outlive
/// the loader.
class Loader {
 public:
  /// `transport`: by default to the calling thread's default device.
  Loader(const ClipSet& clips, const LoaderOptions& options, std::int64_t first,
         Transport transport = transport_to(pp::default_device()));
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch in order. Rethrows an error of its preparation.
  [[nodiscard]] TensorBatch next();
  /// Seconds that next() has waited so far.
  [[nodiscard]] double waited() const { return waited_; }

 private:
  void run(std::int64_t step);

  const ClipSet& clips_;
  LoaderOptions options_;
  Transport transport_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrival> queue_;
  std::exception_ptr failure_;
  bool stop_ = false;
  double waited_ = 0;
  std::thread thread_;  // last, because it uses all members above
};

}  // namespace training
