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

/// `count` streams of the calling thread.
std::vector<const Stream*> part_streams(int device, std::size_t count) {
  thread_local std::map<int, std::vector<std::unique_ptr<Stream>>> streams;  // by device
  std::vector<std::unique_ptr<Stream>>& own = streams[device];
  while (own.size() < count) own.push_back(std::make_unique<Stream>(device));
  std::vector<const Stream*> first;
  for (std::size_t i = 0; i < count; ++i) first.push_back(own[i].get());
  return first;
}

constinit thread_local bool in_part = false;

class PartScope {
 public:
  PartScope() { in_part = true; }
  ~PartScope() { in_part = false; }
  PartScope(const PartScope&) = delete;
  PartScope& operator=(const PartScope&) = delete;
};

class StreamFork final : public BackendFork {
 public:
  StreamFork(int device, std::size_t parts) : streams_(part_streams(device, parts - 1)) {
    for (const Stream* stream : streams_) stream->wait_for_current();
  }
  ~StreamFork() override {
    try {
      join();
    } catch (const std::exception&) {
      // The capture has failed already.
    }
  }

  void run(std::size_t part, const std::function<void()>& work) override {
    require<Error>(part <= streams_.size(), "fork: expected a part up to ", streams_.size(), ", got ", part);
    const PartScope scope;
    if (part == 0) return work();
    const StreamGuard guard(*streams_[part - 1]);
    work();
  }
  void join() override {
    if (std::exchange(is_joined_, true)) return;
    for (const Stream* stream : streams_) stream->let_current_wait();
  }

 private:
  std::vector<const Stream*> streams_;
  bool is_joined_ = false;
};

}  // namespace

std::unique_ptr<BackendFork> make_fork(int device, std::size_t parts) {
  if (parts < 2 || in_part || !capturing()) return nullptr;
  return std::make_unique<StreamFork>(device, parts);
}

}  // namespace polyphase::cuda
