#include "tensor/storage.hpp"

#include <utility>

#include "tensor/tensor_backend.hpp"

namespace polyphase {
namespace {

constinit thread_local WriteObserver* observer_of_thread = nullptr;

}  // namespace

WriteObserver* WriteObserver::exchange(WriteObserver* observer) noexcept { return std::exchange(observer_of_thread, observer); }

Storage::Storage(std::size_t bytes, Device device) : block_(std::make_shared<Block>()) {
  block_->device = device;
  block_->data = tensor_backend_of(device).allocator().allocate(bytes);
  block_->bytes = bytes;
}

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void()> release)
    : block_(std::make_shared<Block>()) {
  block_->data = data;
  block_->bytes = bytes;
  block_->device = device;
  block_->borrowed = true;
  block_->release = std::move(release);
}

void Storage::bump_version() const noexcept {
  if (!block_) return;
  ++block_->version;
  if (observer_of_thread != nullptr) observer_of_thread->written(*this);
}

StorageCompanion* Storage::companion(std::unique_ptr<StorageCompanion> (*make)()) const {
  if (!block_ || block_->borrowed || block_->exported) return nullptr;
  std::call_once(block_->companion_made, [&] { block_->companion = make(); });
  return block_->companion.get();
}

Storage::Block::~Block() {
  companion.reset();
  if (!borrowed) {
    if (data != nullptr) tensor_backend_of(device).allocator().deallocate(data, bytes);
  } else if (release) {
    release();
  }
}

}  // namespace polyphase
