#include "cuda/memory/staging.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

struct Slot {
  void* data = nullptr;
  Event read;  // recorded after the last copy out of it
  bool used = false;
};

/// A device's slots, used in rotation.
class Staging {
 public:
  void copy(char* to, const char* from, std::size_t bytes, cudaStream_t stream) {
    const std::scoped_lock lock(mutex_);
    while (bytes > 0) {
      Slot& slot = slots_[next_];
      if (slot.data == nullptr) CHECK_CUDA(cudaHostAlloc(&slot.data, kStagingSlot, cudaHostAllocPortable));
      if (slot.used && !slot.read.done()) slot.read.synchronize();
      const std::size_t part = std::min(bytes, kStagingSlot);
      std::memcpy(slot.data, from, part);
      CHECK_CUDA(cudaMemcpyAsync(to, slot.data, part, cudaMemcpyHostToDevice, stream));
      slot.read.record(stream);
      slot.used = true;
      next_ = (next_ + 1) % kStagingSlots;
      to += part, from += part, bytes -= part;
    }
  }

 private:
  std::mutex mutex_;
  std::array<Slot, kStagingSlots> slots_;
  std::size_t next_ = 0;
};

Staging& staging_of(int device) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, Staging>;  // never destroyed: the driver may be gone by then
  const std::scoped_lock lock(mutex);
  return (*all)[device];
}

}  // namespace

void stage(void* device_data, const void* host_data, std::size_t bytes, cudaStream_t stream, int device) {
  if (bytes == 0) return;
  const DeviceScope scope(device);
  if (bytes <= kStagingSlot * kStagingSlots) {
    staging_of(device).copy(static_cast<char*>(device_data), static_cast<const char*>(host_data), bytes, stream);
    return;
  }
  CHECK_CUDA(cudaMemcpyAsync(device_data, host_data, bytes, cudaMemcpyHostToDevice, stream));
  wait_for(stream);
}

}  // namespace polyphase::cuda
