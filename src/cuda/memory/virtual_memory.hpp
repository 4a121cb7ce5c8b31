#pragma once
// The GPU as a MemorySource: separate address space and memory, through the driver's virtual memory management. The driver is
// loaded at run time, so that neither building nor starting the library needs one. Internal: includes CUDA headers.

#include <unordered_map>
#include <vector>

#include "cuda/memory/memory_source.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

class VirtualMemory final : public MemorySource {
 public:
  /// Whether the driver and the device support it (all from sm_70 on, but not every virtual GPU).
  [[nodiscard]] static bool supported(int device);
  explicit VirtualMemory(int device);

  [[nodiscard]] Address reserve(std::size_t bytes) override;
  void release(Address address, std::size_t bytes) noexcept override;
  [[nodiscard]] std::size_t available() override;
  [[nodiscard]] bool map(Address address, std::size_t bytes) override;
  void unmap(Address address, std::size_t bytes) noexcept override;
  [[nodiscard]] bool move(Address from, Address to, std::size_t bytes) override;
  [[nodiscard]] std::size_t granularity() const override { return granularity_; }

  [[nodiscard]] EventId record(StreamId stream) override;
  [[nodiscard]] bool done(EventId event) override;
  void wait(EventId event) override;
  void order(StreamId earlier, StreamId later) override;
  void synchronize(StreamId stream) override;

 private:
  [[nodiscard]] bool map_handle(Address address, std::size_t bytes, unsigned long long handle);

  const int device_;
  std::size_t granularity_ = 0;
  std::unordered_map<Address, unsigned long long> handles_;  // of the mapped pieces; 0 if the memory has moved
  std::vector<Event> spare_;
  std::unordered_map<EventId, Event> events_;
};

}  // namespace polyphase::cuda
