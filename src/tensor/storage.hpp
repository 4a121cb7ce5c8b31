#pragma once
// A reference-counted block of device memory, shared by the views of one tensor.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "../tensor/device.hpp"

namespace polyphase {

/// Data that a backend computed from the bytes of a block and keeps with it, such as packed weights of a kernel.
class StorageCompanion {
 public:
  StorageCompanion() = default;
  StorageCompanion(const StorageCompanion&) = delete;
  StorageCompanion& operator=(const StorageCompanion&) = delete;
  virtual ~StorageCompanion() = default;
};

class Storage;

/// Is notified of every in-place write of the library on a thread, in bump_version().
class WriteObserver {
 public:
  WriteObserver() = default;
  WriteObserver(const WriteObserver&) = delete;
  WriteObserver& operator=(const WriteObserver&) = delete;
  virtual ~WriteObserver() = default;
  virtual void written(const Storage& storage) noexcept = 0;
  /// Makes `observer` (null: none) the calling thread's observer; returns the previous one.
  static WriteObserver* exchange(WriteObserver* observer) noexcept;
};

/// A handle on a block of bytes. Copies share the block; the last one frees it.
class Storage {
 public:
  Storage() = default;
  /// A fresh block from the device's allocator. Throws OutOfMemory.
  Storage(std::size_t bytes, Device device);
  /// Borrows memory with another owner; `release` (may be empty, must not throw) is called once when the last handle is
  /// destroyed.
  Storage(void* data, std::size_t bytes, Device device, std::function<void()> release);

  [[nodiscard]] void* data() const noexcept { return block_ ? block_->data : nullptr; }
  [[nodiscard]] std::size_t bytes() const noexcept { return block_ ? block_->bytes : 0; }
  [[nodiscard]] Device device() const noexcept { return block_ ? block_->device : Device::cpu(); }
  /// Counts in-place writes, so that backward detects that a saved tensor was changed, and packed weights that they are out of
  /// date. Code that writes through a raw pointer must call bump_version() afterwards.
  [[nodiscard]] std::uint64_t version() const noexcept { return block_ ? block_->version.load() : 0; }
  void bump_version() const noexcept;
  /// From now on, code outside the library may write the bytes without a new version().
  void mark_exported() const noexcept {
    if (block_) block_->exported = true;
  }
  /// The block's companion, which lives as long as the block; `make` is called at most once per block. Null if others may write
  /// the bytes (borrowed or exported memory), and for a null handle.
  [[nodiscard]] StorageCompanion* companion(std::unique_ptr<StorageCompanion> (*make)()) const;
  [[nodiscard]] bool shares_with(const Storage& other) const noexcept { return block_ == other.block_; }

 private:
  friend class WeakStorage;
  struct Block {
    void* data = nullptr;
    std::size_t bytes = 0;
    Device device;
    std::atomic<std::uint64_t> version = 0;  // threads may write to different parts
    bool borrowed = false;
    std::atomic<bool> exported = false;
    std::function<void()> release;  // of borrowed memory; may be empty
    std::once_flag companion_made;
    std::unique_ptr<StorageCompanion> companion;
    Block() = default;
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block();
  };
  std::shared_ptr<Block> block_;
};

/// A handle that does not keep the block alive.
class WeakStorage {
 public:
  explicit WeakStorage(const Storage& storage) : block_(storage.block_) {}
  /// Storage::bump_version if the block still exists, but without notifying an observer.
  void bump_version() const noexcept {
    if (const auto block = block_.lock()) ++block->version;
  }
  [[nodiscard]] bool is_of(const Storage& storage) const noexcept { return block_.lock() == storage.block_; }

 private:
  std::weak_ptr<Storage::Block> block_;
};

}  // namespace polyphase
