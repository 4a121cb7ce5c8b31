#pragma once
// The caching allocator of the host: fresh pages from the system cost more than most operations on them, so freed blocks are
// kept by size class and reused. Internal to the library; users see it through memory statistics.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "tensor/allocator.hpp"

namespace polyphase::cpu {

/// The source of blocks. Tests replace it by a failing one.
struct SystemMemory {
  void* (*allocate)(std::size_t bytes, std::size_t alignment);  ///< null if there is no memory
  void (*release)(void* pointer);
};

/// malloc and free, with huge pages requested for blocks that can use them.
[[nodiscard]] SystemMemory system_memory();

/// Blocks in size classes: multiples of 64 bytes up to 1 KiB, above that eight classes between powers of two, so that at most
/// one ninth of a block is unused. Statistics count whole classes. The alignment is 64 bytes, and 2 MiB for blocks of 2 MiB and
/// more.
class HostAllocator final : public Allocator {
 public:
  /// Keeps at most `cache_limit` bytes; 0 keeps none.
  explicit HostAllocator(std::size_t cache_limit, SystemMemory system = system_memory());
  ~HostAllocator() override;
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  [[nodiscard]] MemoryStats stats() const override;
  void reset_peak() override;
  void trim() override;
  /// For tests: called before every allocation, which fails if it returns true. An empty function removes the hook.
  void set_failure_hook(std::function<bool(std::size_t bytes)> hook);
  /// Bytes that a block of `bytes` takes.
  [[nodiscard]] static std::size_t block_size(std::size_t bytes);

 private:
  struct FreeBlock {  // in the first bytes of the free block itself
    FreeBlock* next;
  };
  struct SizeClass {
    FreeBlock* first = nullptr;
    std::uint64_t last_use = 0;
  };
  static constexpr std::size_t kClasses = 8 * 56;

  [[nodiscard]] void* pop(std::size_t index);
  void evict_one(std::size_t index) noexcept;
  [[nodiscard]] bool make_room(std::size_t bytes, std::size_t keep_class) noexcept;
  void trim_locked() noexcept;

  const std::size_t cache_limit_;
  const SystemMemory system_;
  mutable std::mutex mutex_;
  std::array<SizeClass, kClasses> classes_{};
  std::uint64_t clock_ = 0;
  MemoryStats stats_;
  std::function<bool(std::size_t)> failure_hook_;
};

/// The allocator of all CPU tensors; it keeps up to an eighth of the machine's memory. Never destroyed, so that tensors in
/// static storage may outlive main.
[[nodiscard]] HostAllocator& host_allocator();

}  // namespace polyphase::cpu
