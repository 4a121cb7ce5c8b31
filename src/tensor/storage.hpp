#pragma once
// A reference-counted block of device memory, shared by the views of one tensor.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/device.hpp"

namespace polyphase {

/// A handle on a block of bytes. Copies share the block; the last one gives it back.
class Storage {
 public:
  Storage() = default;
  /// A fresh block from the device's allocator. Throws OutOfMemory.
  Storage(std::size_t bytes, Device device);
  /// Borrows memory that somebody else owns; `release` (may be empty, must not throw) is called once when the last handle goes.
  Storage(void* data, std::size_t bytes, Device device, std::function<void()> release);

  [[nodiscard]] void* data() const noexcept { return block_ ? block_->data : nullptr; }
  [[nodiscard]] std::size_t bytes() const noexcept { return block_ ? block_->bytes : 0; }
  [[nodiscard]] Device device() const noexcept { return block_ ? block_->device : Device::cpu(); }
  /// Counts in-place writes, so that backward can tell when a saved tensor was changed.
  [[nodiscard]] std::uint64_t version() const noexcept { return block_ ? block_->version : 0; }
  void bump_version() const noexcept {
    if (block_) ++block_->version;
  }
  [[nodiscard]] bool shares_with(const Storage& other) const noexcept { return block_ == other.block_; }

 private:
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    Device device;
    std::uint64_t version = 0;
    bool borrowed = false;
    std::function<void()> release;  // of borrowed memory; may be empty
    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block();
  };
  std::shared_ptr<Block> block_;
};

}  // namespace polyphase
