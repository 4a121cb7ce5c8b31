#include "cpu/memory/allocator.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "tensor/error.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // its macros do nothing outside an ASan build
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace polyphase::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

struct ClassOf {
  std::size_t index;
  std::size_t bytes;
};

// In units of 64 bytes: the four leading bits of (units - 1) select the class; the size is rounded up.
constexpr ClassOf class_of(std::size_t bytes) {
  const std::size_t last = (bytes + kAlignment - 1) / kAlignment - 1;
  if (last < 8) return {last, (last + 1) * kAlignment};
  const std::size_t shift = static_cast<std::size_t>(std::bit_width(last)) - 4;
  return {8 * (shift + 1) + (last >> shift) - 8, (((last >> shift) + 1) << shift) * kAlignment};
}
static_assert(class_of(1).bytes == 64 && class_of(1024).bytes == 1024 && class_of(1025).bytes == 1152);
static_assert(class_of(512).index == 7 && class_of(513).index == 8 && class_of(1024).index == 15);

// The bytes of each class: the inverse of class_of.
constexpr std::size_t class_bytes(std::size_t index) {
  if (index < 8) return (index + 1) * kAlignment;
  return ((index % 8 + 9) << (index / 8 - 1)) * kAlignment;
}
static_assert(class_bytes(class_of(5000).index) == class_of(5000).bytes);

void* system_allocate(std::size_t bytes, std::size_t alignment) {
  void* pointer = nullptr;
  if (posix_memalign(&pointer, alignment, bytes) != 0) return nullptr;
#if defined(MADV_HUGEPAGE)
  if (alignment >= kHugePage) (void)madvise(pointer, bytes, MADV_HUGEPAGE);  // a hint, which may be ignored
#endif
  return pointer;
}

std::size_t physical_memory() {
  static const std::size_t bytes = [] {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0) return std::size_t{4} << 30;
    return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  }();
  return bytes;
}

}  // namespace

SystemMemory system_memory() {
  return {system_allocate, [](void* pointer) { std::free(pointer); }};
}

HostAllocator::HostAllocator(std::size_t cache_limit, SystemMemory system) : cache_limit_(cache_limit), system_(system) {}

HostAllocator::~HostAllocator() { trim_locked(); }

std::size_t HostAllocator::block_size(std::size_t bytes) { return bytes == 0 ? 0 : class_of(bytes).bytes; }

void* HostAllocator::pop(std::size_t index) {
  SizeClass& blocks = classes_[index];
  blocks.last_use = ++clock_;
  FreeBlock* block = blocks.first;
  if (block == nullptr) return nullptr;
  blocks.first = block->next;
  return block;
}

void* HostAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  void* pointer = nullptr;
  ClassOf size{0, bytes};
  // A system that overcommits would grant more than there is, and kill the process at the first writes.
  const bool refused = failure_hook_ && failure_hook_(bytes);
  if (bytes <= physical_memory() && !refused) {
    size = class_of(bytes);
    pointer = pop(size.index);
    if (pointer != nullptr) {
      stats_.cached_bytes -= size.bytes;
    } else {
      const std::size_t alignment = size.bytes >= kHugePage ? kHugePage : kAlignment;
      pointer = system_.allocate(size.bytes, alignment);
      if (pointer == nullptr && stats_.cached_bytes > 0) {
        trim_locked();
        pointer = system_.allocate(size.bytes, alignment);
      }
    }
  }
  require<OutOfMemory>(pointer != nullptr, "cpu: out of memory: asked ", bytes, " bytes, live ", stats_.live_bytes, ", cached ",
                       stats_.cached_bytes, ", total ", physical_memory());
  ASAN_UNPOISON_MEMORY_REGION(pointer, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(pointer) + bytes, size.bytes - bytes);
  stats_.live_bytes += size.bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  ++stats_.allocations;
  ++stats_.live_blocks;
  return pointer;
}

void HostAllocator::deallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return;
  const ClassOf size = class_of(bytes);
  const std::scoped_lock lock(mutex_);
  stats_.live_bytes -= size.bytes;
  --stats_.live_blocks;
  if (!make_room(size.bytes, size.index)) {
    ASAN_UNPOISON_MEMORY_REGION(pointer, size.bytes);
    system_.release(pointer);
    return;
  }
  SizeClass& blocks = classes_[size.index];
  blocks.last_use = ++clock_;
  ASAN_UNPOISON_MEMORY_REGION(pointer, sizeof(FreeBlock));
  blocks.first = new (pointer) FreeBlock{blocks.first};
  stats_.cached_bytes += size.bytes;
  // The link stays readable: the leak checker does not follow pointers in poisoned memory.
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(pointer) + sizeof(FreeBlock), size.bytes - sizeof(FreeBlock));
}

// Makes room for `bytes` more in the cache by releasing the classes that were not used for the longest time.
bool HostAllocator::make_room(std::size_t bytes, std::size_t keep_class) noexcept {
  if (bytes > cache_limit_) return false;
  while (stats_.cached_bytes > cache_limit_ - bytes) {
    std::size_t oldest = kClasses;
    for (std::size_t i = 0; i < kClasses; ++i) {
      if (i == keep_class || classes_[i].first == nullptr) continue;
      if (oldest == kClasses || classes_[i].last_use < classes_[oldest].last_use) oldest = i;
    }
    if (oldest == kClasses) return false;
    evict_one(oldest);
  }
  return true;
}

void HostAllocator::evict_one(std::size_t index) noexcept {
  FreeBlock* block = classes_[index].first;
  classes_[index].first = block->next;
  stats_.cached_bytes -= class_bytes(index);
  ASAN_UNPOISON_MEMORY_REGION(block, class_bytes(index));
  system_.release(block);
}

void HostAllocator::trim_locked() noexcept {
  for (std::size_t i = 0; i < kClasses; ++i) {
    while (classes_[i].first != nullptr) evict_one(i);
  }
}

MemoryStats HostAllocator::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void HostAllocator::reset_peak() {
  const std::scoped_lock lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

void HostAllocator::set_failure_hook(std::function<bool(std::size_t bytes)> hook) {
  const std::scoped_lock lock(mutex_);
  failure_hook_ = std::move(hook);
}

void HostAllocator::trim() {
  const std::scoped_lock lock(mutex_);
  trim_locked();
}

HostAllocator& host_allocator() {
  static auto& instance = *new HostAllocator(physical_memory() / 8);
  return instance;
}

}  // namespace polyphase::cpu
