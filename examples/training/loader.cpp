#include "training/loader.hpp"

#include <algorithm>
#include <chrono>

#include "tensor/random.hpp"

namespace training {
namespace {

// Blocks of random numbers reserved for one row. A row uses two, and more if a draw is repeated.
constexpr std::uint64_t kBlocksPerRow = 16;

struct Place {
  const Clip* clip;
  std::int64_t start;  // in low-rate samples
};

// Draws a start, uniform over all starts of all clips.
Place draw_place(const ClipSet& clips, const LoaderOptions& options, std::uint64_t row) {
  polyphase::Generator generator(options.seed);
  generator.set_state({options.seed, row * kBlocksPerRow});
  const auto starts = [&](const Clip& clip) { return (clip.length() - options.window) / options.factor + 1; };
  std::int64_t total = 0;
  for (const Clip& clip : clips.clips) total += starts(clip);
  std::int64_t place = generator.integer(total);
  for (const Clip& clip : clips.clips) {
    if (place < starts(clip)) return {&clip, place};
    place -= starts(clip);
  }
  return {&clips.clips.back(), 0};  // not reached: place < total
}

}  // namespace

Batch make_batch(const ClipSet& clips, const LoaderOptions& options, std::int64_t step) {
  Batch batch;
  batch.step = step;
  batch.rows = options.batch;
  const std::int64_t low_count =
      options.factor == 1 ? 0 : options.context_left + options.window / options.factor + options.context_right;
  const std::int64_t first = (step * options.world + options.rank) * options.batch;
  batch.low.reserve(static_cast<std::size_t>(options.batch * low_count));
  batch.high.reserve(static_cast<std::size_t>(options.batch * options.window));
  for (std::int64_t n = 0; n < options.batch; ++n) {
    const auto [clip, start] = draw_place(clips, options, static_cast<std::uint64_t>(first + n));
    if (low_count > 0) {
      const std::vector<float> low = clip->low(start - options.context_left, low_count);
      batch.low.insert(batch.low.end(), low.begin(), low.end());
    }
    const std::vector<float> high = clip->high(start * options.factor, options.window);
    batch.high.insert(batch.high.end(), high.begin(), high.end());
  }
  return batch;
}

Loader::Loader(const ClipSet& clips, const LoaderOptions& options, std::int64_t first, Transport transport)
    : clips_(clips), options_(options), transport_(std::move(transport)), thread_([this, first] { run(first); }) {}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::run(std::int64_t step) {
  try {
    for (;; ++step) {
      const Batch batch = make_batch(clips_, options_, step);
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || queue_.size() < options_.queue; });
        if (stop_) return;
      }
      Arrival arrival = transport_(batch);
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(arrival));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

TensorBatch Loader::next() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !queue_.empty() || failure_; });
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (queue_.empty()) std::rethrow_exception(failure_);
  const Arrival arrival = std::move(queue_.front());
  queue_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return arrival();
}

}  // namespace training
