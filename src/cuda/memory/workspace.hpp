#pragma once
// Scratch memory that a caller of the library provides, instead of the device's allocator. Internal; no CUDA headers.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace polyphase::cuda {

/// While it exists, what the calling thread allocates on the device are parts of one block of memory (WorkspaceAllocator). All
/// work of the thread must go to one stream, which uses the block in order. What is allocated must be freed before it ends.
class Workspace {
 public:
  static constexpr std::size_t kAlignment = 256;

  /// `memory` of `bytes` on `device`, aligned to kAlignment. Throws Error if it is not.
  Workspace(int device, void* memory, std::size_t bytes);
  /// Has no memory: blocks come from the device's allocator, and are counted in most_bytes().
  explicit Workspace(int device);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// The calling thread's newest; null without one.
  [[nodiscard]] static Workspace* current() noexcept;
  [[nodiscard]] bool only_counts() const noexcept { return only_counts_; }
  /// A part aligned to kAlignment; null for 0 bytes. Throws OutOfMemory naming the bytes, Error for another device.
  [[nodiscard]] void* take(int device, std::size_t bytes);
  /// The part is free for the next take() if it was the last one taken, or if all are released.
  void release(const void* part, std::size_t bytes) noexcept;
  [[nodiscard]] bool contains(const void* part) const noexcept;
  /// With only_counts(): counts a block as if it were a part, until uncount(), which returns whether it was counted.
  void count(int device, const void* block, std::size_t bytes);
  bool uncount(const void* block, std::size_t bytes) noexcept;
  /// The bytes that a workspace needs for the same calls.
  [[nodiscard]] std::size_t most_bytes() const noexcept { return most_; }

 private:
  Workspace(int device, std::uintptr_t begin, std::size_t bytes, bool only_counts);

  Workspace* previous_;
  int device_;
  std::uintptr_t begin_;
  std::size_t bytes_;
  bool only_counts_;
  std::size_t used_ = 0, most_ = 0, parts_ = 0;
  std::vector<std::pair<const void*, const void*>> counted_;  // a block, and the part that stands for it
};

}  // namespace polyphase::cuda
