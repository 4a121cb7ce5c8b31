#include "cuda/cuda.hpp"

#include "cuda/elementwise/index_check.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

void retire_stream(int device, cudaStream_t stream) {
  refuse_capture("cuda::retire_stream");
  (void)properties(device);
  const DeviceScope scope(device);
  wait_for(stream);
  allocator(device).retire_stream(reinterpret_cast<StreamId>(stream));
}

void synchronize(int device) {
  refuse_capture("cuda::synchronize");
  (void)properties(device);
  const DeviceScope scope(device);
  wait_for_device();
  report_bad_index(device);
}

MemoryStats memory_stats(int device) { return allocator(device).stats(); }

std::string memory_snapshot(int device) { return allocator(device).snapshot(); }

void set_memory_limit(int device, std::size_t bytes) { allocator(device).set_limit(bytes); }

}  // namespace polyphase::cuda
