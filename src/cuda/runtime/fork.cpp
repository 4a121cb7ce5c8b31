#include "cuda/runtime/fork.hpp"

#include <exception>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {
namespace {

/// The streams of the parts of forks, and those of forks inside a part.
struct PartStreams {
  std::map<int, std::vector<std::unique_ptr<Stream>>> of_device;  // without part 0, which has the fork's
  std::vector<std::unique_ptr<PartStreams>> inside;               // (parts)

  [[nodiscard]] std::vector<const Stream*> first(int device, std::size_t count) {
    std::vector<std::unique_ptr<Stream>>& own = of_device[device];
    while (own.size() < count) own.push_back(std::make_unique<Stream>(device));
    std::vector<const Stream*> streams;
    for (std::size_t i = 0; i < count; ++i) streams.push_back(own[i].get());
    return streams;
  }
  [[nodiscard]] PartStreams& of_part(std::size_t part) {
    while (inside.size() <= part) inside.push_back(std::make_unique<PartStreams>());
    return *inside[part];
  }
};

/// The streams for forks of the calling thread: outside of all parts, and where it is.
thread_local PartStreams outside;
thread_local PartStreams* here = &outside;

/// The calling thread issues a part.
class PartScope {
 public:
  PartScope(PartStreams& of_fork, std::size_t part) : before_(std::exchange(here, &of_fork.of_part(part))) {}
  ~PartScope() { here = before_; }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;

 private:
  PartStreams* before_;
};

class StreamFork final : public BackendFork {
 public:
  StreamFork(int device, std::size_t parts) : place_(*here), streams_(place_.first(device, parts - 1)), has_begun_(parts - 1) {
    begin_.record(current_stream(device));
  }
  ~StreamFork() override {
    try {
      join();
    } catch (const std::exception&) {
      // The capture has failed already.
    }
  }

  void run(std::size_t part, const std::function<void()>& work) override {
    const PartScope scope(place_, part);
    if (part == 0) return work();
    const StreamGuard guard(begun(part));
    work();
  }
  void follow(std::size_t part) override { begun(part).wait_for_current(); }
  [[nodiscard]] std::size_t moment(std::size_t part) override {
    moments_.emplace_back();
    moments_.back().record(begun(part).get());
    return moments_.size() - 1;
  }
  void wait_for(std::size_t moment) override { moments_.at(moment).wait_on(current_stream(streams_.front()->device())); }
  void join() override {
    if (std::exchange(is_joined_, true)) return;
    for (std::size_t i = 0; i < streams_.size(); ++i)
      if (has_begun_[i]) streams_[i]->let_current_wait();
  }

 private:
  // The part's stream, which begins after what the fork found. Streams that are not used do not become part of the graph.
  [[nodiscard]] const Stream& begun(std::size_t part) {
    require<Error>(part >= 1 && part <= streams_.size(), "fork: expected a part up to ", streams_.size(), ", got ", part);
    const Stream& stream = *streams_[part - 1];
    if (!has_begun_[part - 1]) begin_.wait_on(stream.get());
    has_begun_[part - 1] = true;
    return stream;
  }

  PartStreams& place_;
  std::vector<const Stream*> streams_;
  std::vector<bool> has_begun_;
  Event begin_;
  std::vector<Event> moments_;
  bool is_joined_ = false;
};

}  // namespace

bool is_in_part() noexcept { return here != &outside; }

std::unique_ptr<BackendFork> make_fork(int device, std::size_t parts) {
  if (parts < 2 || !capturing()) return nullptr;
  return std::make_unique<StreamFork>(device, parts);
}

}  // namespace polyphase::cuda
