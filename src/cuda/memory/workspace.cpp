#include "cuda/memory/workspace.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "tensor/error.hpp"

namespace polyphase::cuda {
namespace {

constinit thread_local Workspace* newest = nullptr;

constexpr std::size_t rounded_up(std::size_t bytes) {
  return (bytes + Workspace::kAlignment - 1) / Workspace::kAlignment * Workspace::kAlignment;
}

}  // namespace

Workspace::Workspace(int device, std::uintptr_t begin, std::size_t bytes, bool only_counts)
    : previous_(newest), device_(device), begin_(begin), bytes_(bytes), only_counts_(only_counts) {
  newest = this;
}

Workspace::Workspace(int device, void* memory, std::size_t bytes)
    : Workspace(device, reinterpret_cast<std::uintptr_t>(memory), bytes, false) {
  if (begin_ % kAlignment == 0) return;
  newest = previous_;
  throw Error(concat("workspace: expected memory at a multiple of ", kAlignment, " bytes, got address ", begin_));
}

Workspace::Workspace(int device) : Workspace(device, 0, std::numeric_limits<std::size_t>::max(), true) {}

Workspace::~Workspace() { newest = previous_; }

Workspace* Workspace::current() noexcept { return newest; }

void* Workspace::take(int device, std::size_t bytes) {
  require<Error>(device == device_, "workspace: expected work on cuda:", device_, ", got cuda:", device);
  if (bytes == 0) return nullptr;
  const std::size_t size = rounded_up(bytes);
  require<OutOfMemory>(size <= bytes_ - used_, "cuda:", device, ": expected a workspace of at least ", used_ + size,
                       " bytes, got ", bytes_);
  void* const part = reinterpret_cast<void*>(begin_ + used_);
  used_ += size;
  most_ = std::max(most_, used_);
  ++parts_;
  return part;
}

void Workspace::release(const void* part, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(part);
  if (begin + rounded_up(bytes) == begin_ + used_) used_ = begin - begin_;
  if (--parts_ == 0) used_ = 0;
}

bool Workspace::contains(const void* part) const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(part);
  return !only_counts_ && address >= begin_ && address - begin_ < bytes_;
}

void Workspace::count(int device, const void* block, std::size_t bytes) { counted_.emplace_back(block, take(device, bytes)); }

bool Workspace::uncount(const void* block, std::size_t bytes) noexcept {
  const auto found = std::find_if(counted_.begin(), counted_.end(), [block](const auto& pair) { return pair.first == block; });
  if (found == counted_.end()) return false;
  release(found->second, bytes);
  counted_.erase(found);
  return true;
}

}  // namespace polyphase::cuda
