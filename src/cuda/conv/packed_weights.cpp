#include "cuda/conv/packed_weights.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "cuda/conv/ahead.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr std::size_t kMostPackings = 8;  // per storage: forward, dgrad and a few tilings of each

struct Packing {
  Packing(PackingKey packing_key, const void* weights, std::size_t bytes, int on, cudaStream_t stream)
      : key(std::move(packing_key)), data(weights), buffer(bytes, on), device(on), home(stream) {}

  PackingKey key;
  const void* data;
  Buffer buffer;
  int device;
  cudaStream_t home;  // of its memory
  cudaStream_t packed_on = nullptr;
  std::uint64_t version = 0;
  Event ready;

  void pack(const Weights::Pack& make, std::uint64_t now, cudaStream_t stream) {
    // The writer of the weights was ordered after all readers of the weights, and so after all readers of this packing.
    if (packed_on != nullptr && packed_on != stream) ready.wait_on(stream);
    make(data, buffer.as<void>(), stream);
    ready.record(stream);
    packed_on = stream;
    version = now;
  }
  void use_on(cudaStream_t stream) {
    if (packed_on != stream) ready.wait_on(stream);
    if (home != stream) allocator(device).record_stream(buffer.as<void>(), reinterpret_cast<StreamId>(stream));
  }
};

class Packings final : public StorageCompanion {
 public:
  static std::unique_ptr<StorageCompanion> make() { return std::make_unique<Packings>(); }

  std::mutex mutex;
  std::vector<std::shared_ptr<Packing>> all;  // the most recently used is last

  std::shared_ptr<Packing> find(const PackingKey& key, const void* data) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& packing) { return packing->key == key && packing->data == data; });
    if (found == all.end()) return nullptr;
    std::rotate(found, found + 1, all.end());
    return all.back();
  }
};

std::shared_ptr<const Buffer> buffer_of(const std::shared_ptr<Packing>& packing) { return {packing, &packing->buffer}; }

}  // namespace

std::shared_ptr<const Buffer> Weights::packed(const PackingKey& key, std::size_t bytes, int device, cudaStream_t stream,
                                              const Pack& pack) const {
  auto* packings = static_cast<Packings*>(storage_.companion(&Packings::make));
  if (packings != nullptr) {
    const std::scoped_lock lock(packings->mutex);
    std::shared_ptr<Packing> packing = packings->find(key, data_);
    const bool is_current = packing != nullptr && packing->version == storage_.version();
    if (capturing() && is_current) {
      before_replay([packings, packing, pack, storage = storage_](cudaStream_t replay) {
        const std::scoped_lock replay_lock(packings->mutex);
        // Memory that was exported since may be written without a new version.
        const bool is_known = storage.companion(&Packings::make) != nullptr;
        if (!is_known || packing->version != storage.version()) packing->pack(pack, storage.version(), replay);
        packing->use_on(replay);
      });
      return buffer_of(packing);
    }
    if (!capturing()) {
      if (packing == nullptr) {
        packing = std::make_shared<Packing>(key, data_, bytes, device, stream);
        packing->pack(pack, storage_.version(), stream);
        if (packings->all.size() == kMostPackings) packings->all.erase(packings->all.begin());
        packings->all.push_back(packing);
      } else if (!is_current) {
        packing->pack(pack, storage_.version(), stream);
      }
      packing->use_on(stream);
      return buffer_of(packing);
    }
  }
  if (auto ahead = packed_ahead(storage_, data_, key, bytes, device, stream, pack)) return ahead;
  auto fresh = std::make_shared<Buffer>(bytes, device);
  pack(data_, fresh->as<void>(), stream);
  return fresh;
}

}  // namespace polyphase::cuda
