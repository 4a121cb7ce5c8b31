#include "cuda/conv/ahead.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "cuda/cuda.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

/// Packings that wait for their use. Beyond it weights are packed where they are used, as they are without pack_ahead().
constexpr std::size_t kMostBytes = std::size_t{1} << 29;

/// A stream that the calling thread uses for nothing else.
const Stream& stream_ahead(int device) {
  thread_local std::map<int, Stream> streams;  // by device
  return streams.try_emplace(device, device).first->second;
}

/// What one capture packs ahead.
class Ahead {
 public:
  void add(std::span<const Storage> weights, cudaStream_t stream) {
    moments_.emplace_back().written.record(stream);
    for (const Storage& storage : weights) known_.emplace_back(storage, moments_.back());
  }

  std::shared_ptr<const Buffer> packed(const Storage& weights, const void* data, const PackingKey& key, std::size_t bytes,
                                       int device, cudaStream_t stream, const Weights::Pack& pack) {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& one) {
      return one.storage.is_of(weights) && one.version == weights.version();
    });
    if (known == known_.end()) return nullptr;
    auto found = known->packings.find({data, key});
    if (found == known->packings.end()) {
      if (bytes_ + bytes > kMostBytes) return nullptr;
      bytes_ += bytes;
      const Stream& own = stream_ahead(device);
      const StreamGuard guard(own);
      // A stream that is used for nothing must not become part of the graph.
      if (!std::exchange(known->moment.has_begun, true)) known->moment.written.wait_on(own.get());
      Packing packing{std::make_shared<Buffer>(bytes, device)};
      pack(data, packing.buffer->as<void>(), own.get());
      packing.ready.record(own.get());
      found = known->packings.emplace(std::pair{data, key}, std::move(packing)).first;
    }
    found->second.ready.wait_on(stream);
    return found->second.buffer;
  }

 private:
  struct Moment {
    Event written;
    bool has_begun = false;
  };
  struct Packing {
    std::shared_ptr<Buffer> buffer;
    Event ready{};
  };
  struct Known {
    Known(const Storage& weights, Moment& written) : storage(weights), version(weights.version()), moment(written) {}
    WeakStorage storage;
    std::uint64_t version;
    Moment& moment;
    std::map<std::pair<const void*, PackingKey>, Packing> packings{};  // of this storage: a later one may have its address
  };

  std::deque<Moment> moments_;
  std::deque<Known> known_;
  std::size_t bytes_ = 0;
};

thread_local std::weak_ptr<Ahead> current;  // the capture owns it

}  // namespace

void pack_ahead(std::span<const Storage> weights, int device, cudaStream_t stream) {
  if (!capturing()) return;
  std::shared_ptr<Ahead> ahead = current.lock();
  if (ahead == nullptr) {
    ahead = std::make_shared<Ahead>();
    keep_while_capturing(ahead);
    current = ahead;
  }
  const DeviceScope scope(device);
  ahead->add(weights, stream);
}

std::shared_ptr<const Buffer> packed_ahead(const Storage& weights, const void* data, const PackingKey& key, std::size_t bytes,
                                           int device, cudaStream_t stream, const Weights::Pack& pack) {
  const std::shared_ptr<Ahead> ahead = capturing() ? current.lock() : nullptr;
  return ahead == nullptr ? nullptr : ahead->packed(weights, data, key, bytes, device, stream, pack);
}

}  // namespace polyphase::cuda
