#pragma once
// A simulated GPU: memory is only counted, streams run on command, and every use of memory is recorded and checked.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "cuda/memory/memory_source.hpp"

namespace polyphase::testing {

/// Each stream counts its work items. `seen[a][b]`: the next item of stream a runs after this many items of stream b.
class FakeMemory final : public cuda::MemorySource {
 public:
  explicit FakeMemory(std::size_t total) : total_(total) {}

  cuda::Address reserve(std::size_t bytes) override {
    if (reserved_ + bytes > reserve_limit) return 0;
    reserved_ += bytes;
    const cuda::Address address = next_;
    next_ += bytes + kUnit;
    spaces_[address] = bytes;
    return address;
  }
  void release(cuda::Address address, std::size_t bytes) noexcept override {
    if (spaces_[address] != bytes) ++faults;
    spaces_.erase(address);
    reserved_ -= bytes;
  }
  std::size_t available() override {
    return claims_more ? std::numeric_limits<std::size_t>::max() : total_ > mapped_ ? total_ - mapped_ : 0;
  }
  bool map(cuda::Address address, std::size_t bytes) override {
    ++map_calls;
    if (mapped_ + bytes > total_) return false;
    if (address % kUnit != 0 || bytes % kUnit != 0 || bytes == 0) ++faults;
    const auto next = pieces_.lower_bound(address);
    if (next != pieces_.end() && next->first < address + bytes) ++faults;
    if (next != pieces_.begin() && std::prev(next)->first + std::prev(next)->second > address) ++faults;
    pieces_[address] = bytes;
    mapped_ += bytes;
    return true;
  }
  void unmap(cuda::Address address, std::size_t bytes) noexcept override {
    if (!pieces_.contains(address) || pieces_[address] != bytes) ++faults;
    for (const auto& [begin, use] : uses_) {
      if (begin < address + bytes && use.end > address && completed_[use.stream] < use.count) ++faults;  // still running
    }
    pieces_.erase(address);
    if (left_.erase(address) == 0) mapped_ -= bytes;
  }
  bool move(cuda::Address from, cuda::Address to, std::size_t bytes) override {
    if (moves_left == 0) return false;
    --moves_left;
    if (!pieces_.contains(from) || pieces_[from] != bytes || left_.contains(from)) ++faults;
    const auto next = pieces_.lower_bound(to);
    if (to % kUnit != 0 || (next != pieces_.end() && next->first < to + bytes)) ++faults;
    if (next != pieces_.begin() && std::prev(next)->first + std::prev(next)->second > to) ++faults;
    pieces_[to] = bytes;
    left_.insert(from);
    std::vector<std::pair<cuda::Address, Use>> behind;  // work on the memory continues, also after the move to other addresses
    for (const auto& [begin, use] : uses_) {
      if (begin >= from + bytes || use.end <= from) continue;
      const cuda::Address end = std::min(use.end, from + bytes);
      behind.push_back({std::max(begin, from) - from + to, {end - from + to, use.stream, use.count}});
    }
    uses_.insert(behind.begin(), behind.end());
    ++moves;
    return true;
  }
  std::size_t granularity() const override { return kUnit; }

  cuda::EventId record(cuda::StreamId stream) override {
    require_stream(stream);
    events_[++last_event_] = {stream, given_[stream]};
    return last_event_;
  }
  bool done(cuda::EventId event) override {
    const auto [stream, count] = events_.at(event);
    if (completed_[stream] < count) return false;
    events_.erase(event);
    return true;
  }
  void wait(cuda::EventId event) override {
    const auto [stream, count] = events_.at(event);
    run(stream, count);
    events_.erase(event);
  }
  void order(cuda::StreamId earlier, cuda::StreamId later) override {
    require_stream(earlier);
    require_stream(later);
    auto& clock = seen_[later];
    for (const auto& [stream, count] : seen_[earlier]) clock[stream] = std::max(clock[stream], count);
    clock[earlier] = given_[earlier];
  }
  void synchronize(cuda::StreamId stream) override {
    require_stream(stream);
    run(stream, given_[stream]);
  }

  /// Adds work on [address, address + bytes) to the stream. Returns false if the range is not mapped, or if work of another
  /// stream on it may still be running.
  bool use(cuda::StreamId stream, cuda::Address address, std::size_t bytes) {
    const cuda::Address end = address + bytes;
    for (cuda::Address at = address; at < end;) {
      auto piece = pieces_.upper_bound(at);
      if (piece == pieces_.begin() || (--piece)->first + piece->second <= at || left_.contains(piece->first)) return false;
      at = piece->first + piece->second;
    }
    for (auto use = uses_.begin(); use != uses_.end();) {
      if (use->first >= end || use->second.end <= address) {
        ++use;
        continue;
      }
      const Use& other = use->second;
      const bool over =
          other.stream == stream || completed_[other.stream] >= other.count || seen_[stream][other.stream] >= other.count;
      if (!over) return false;
      use = uses_.erase(use);
    }
    uses_.insert({address, {end, stream, ++given_[stream]}});
    return true;
  }
  /// Runs the stream's first `count` work items.
  void run(cuda::StreamId stream, std::uint64_t count) { completed_[stream] = std::max(completed_[stream], count); }
  void run_all(cuda::StreamId stream) { run(stream, given_[stream]); }
  /// The stream does not exist from now on, until create() reuses its number.
  void destroy(cuda::StreamId stream) { gone_.insert(stream); }
  void create(cuda::StreamId stream) { gone_.erase(stream); }

  [[nodiscard]] std::size_t mapped() const { return mapped_; }
  [[nodiscard]] std::size_t reserved() const { return reserved_; }
  [[nodiscard]] std::size_t open_events() const { return events_.size(); }
  void set_total(std::size_t bytes) { total_ = bytes; }

  std::size_t reserve_limit = std::size_t{1} << 46U;
  int moves_left = std::numeric_limits<int>::max(), moves = 0, map_calls = 0;
  bool claims_more = false;  ///< available() is wrong, as if another process were faster
  int faults = 0;            ///< calls that a GPU would have refused, and calls that unmap memory while work on it runs

  static constexpr std::size_t kUnit = std::size_t{2} << 20U;

 private:
  void require_stream(cuda::StreamId stream) { faults += gone_.contains(stream) ? 1 : 0; }

  struct Use {
    cuda::Address end;
    cuda::StreamId stream;
    std::uint64_t count;
  };
  std::size_t total_;
  std::size_t mapped_ = 0, reserved_ = 0;
  cuda::Address next_ = std::size_t{1} << 40U;
  std::map<cuda::Address, std::size_t> spaces_, pieces_;
  std::set<cuda::Address> left_;  // pieces whose memory was moved
  std::multimap<cuda::Address, Use> uses_;
  std::map<cuda::StreamId, std::uint64_t> given_, completed_;
  std::set<cuda::StreamId> gone_;
  std::map<cuda::StreamId, std::map<cuda::StreamId, std::uint64_t>> seen_;
  struct Event {
    cuda::StreamId stream;
    std::uint64_t count;
  };
  std::map<cuda::EventId, Event> events_;
  cuda::EventId last_event_ = 0;
};

}  // namespace polyphase::testing
