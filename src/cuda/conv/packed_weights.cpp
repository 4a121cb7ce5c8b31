#include "cuda/conv/packed_weights.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr std::size_t kMostForms = 8;  // of one storage: forward, dgrad and a few tiles of each

struct Form {
  Form(FormKey form_key, const void* weights, std::size_t bytes, int on, cudaStream_t stream)
      : key(std::move(form_key)), data(weights), buffer(bytes, on), device(on), home(stream) {}

  FormKey key;
  const void* data;
  Buffer buffer;
  int device;
  cudaStream_t home;  // its memory's
  cudaStream_t packed_on = nullptr;
  std::uint64_t version = 0;
  Event ready;

  void pack(const Weights::Pack& make, std::uint64_t now, cudaStream_t stream) {
    // Who wrote the weights was ordered behind all that read them, and so behind all that read this form of them.
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

class Forms final : public StorageCompanion {
 public:
  static std::unique_ptr<StorageCompanion> make() { return std::make_unique<Forms>(); }

  std::mutex mutex;
  std::vector<std::shared_ptr<Form>> all;  // the one used last at the end

  std::shared_ptr<Form> find(const FormKey& key, const void* data) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& form) { return form->key == key && form->data == data; });
    if (found == all.end()) return nullptr;
    std::rotate(found, found + 1, all.end());
    return all.back();
  }
};

std::shared_ptr<const Buffer> buffer_of(const std::shared_ptr<Form>& form) { return {form, &form->buffer}; }

}  // namespace

std::shared_ptr<const Buffer> Weights::packed(const FormKey& key, std::size_t bytes, int device, cudaStream_t stream,
                                              const Pack& pack) const {
  auto* forms = static_cast<Forms*>(storage_.companion(&Forms::make));
  if (forms != nullptr) {
    const std::scoped_lock lock(forms->mutex);
    std::shared_ptr<Form> form = forms->find(key, data_);
    const bool is_current = form != nullptr && form->version == storage_.version();
    if (capturing() && is_current) {
      before_replay([forms, form, pack, storage = storage_](cudaStream_t replay) {
        const std::scoped_lock replay_lock(forms->mutex);
        // What was handed out since may be written without a new version.
        const bool is_known = storage.companion(&Forms::make) != nullptr;
        if (!is_known || form->version != storage.version()) form->pack(pack, storage.version(), replay);
        form->use_on(replay);
      });
      return buffer_of(form);
    }
    if (!capturing()) {
      if (form == nullptr) {
        form = std::make_shared<Form>(key, data_, bytes, device, stream);
        form->pack(pack, storage_.version(), stream);
        if (forms->all.size() == kMostForms) forms->all.erase(forms->all.begin());
        forms->all.push_back(form);
      } else if (!is_current) {
        form->pack(pack, storage_.version(), stream);
      }
      form->use_on(stream);
      return buffer_of(form);
    }
  }
  auto fresh = std::make_shared<Buffer>(bytes, device);
  pack(data_, fresh->as<void>(), stream);
  return fresh;
}

}  // namespace polyphase::cuda
