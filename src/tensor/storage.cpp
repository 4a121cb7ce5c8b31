#include "tensor/storage.hpp"

#include <utility>

#include "tensor/backend.hpp"

namespace polyphase {

Storage::Storage(std::size_t bytes, Device device) : block_(std::make_shared<Block>()) {
  block_->device = device;
  block_->data = backend_of(device).allocator().allocate(bytes);
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

Storage::Block::~Block() {
  if (!borrowed) {
    if (data != nullptr) backend_of(device).allocator().deallocate(data, bytes);
  } else if (release) {
    release();
  }
}

}  // namespace polyphase
