#pragma once
// The caching allocator of the host: fresh pages from the system cost more than most operations on them, so freed blocks are
// kept by size class and handed out again. Internal to the library; users see it through memory statistics.

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "tensor/allocator.hpp"

namespace polyphase::cpu {

/// Where blocks come from. Tests put a failing one here.
struct SystemMemory {
  void* (*allocate)(std::size_t bytes, std::size_t alignment);  ///< null where there is no memory
  void (*release)(void* pointer);
};

/// malloc and free, with huge pages asked for where a block can use them.
[[nodiscard]] SystemMemory system_memory();

/// Blocks in size classes: multiples of 64 bytes up to 1 KiB, above that eight classes between powers of two, so that at most
/// one ninth of a block is unused. Statistics count whole classes. Alignment is 64 bytes, from 2 MiB on 2 MiB.
class HostAllocator final : public Allocator {
 public:
  /// At most `cache_limit` bytes are kept; 0 keeps none.
  explicit HostAllocator(std::size_t cache_limit, SystemMemory system = system_memory());
  ~HostAllocator() override;
  HostAllocator(const HostAllocator&) = delete;
  HostAllocator& operator=(const HostAllocator&) = delete;

  [[nodiscard]] void* allocate(std::size_t bytes) override;
  void deallocate(void* pointer, std::size_t bytes) noexcept override;
  [[nodiscard]] MemoryStats stats() const override;
  void reset_peak() override;
  void trim() override;
  /// For tests: asked before every allocation; where it says true there is no memory. Empty takes it away.
  void set_failure_hook(std::function<bool(std::size_t bytes)> hook);
  /// Bytes a block of `bytes` really takes.
  [[nodiscard]] static std::size_t block_size(std::size_t bytes);

 private:
  struct FreeBlock {  // lies in the first bytes of the free block itself
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

/// The one that all CPU tensors use; it keeps up to an eighth of the machine's memory. Never destroyed, so that tensors in
/// static storage may outlive main.
[[nodiscard]] HostAllocator& host_allocator();

}  // namespace polyphase::cpu
