#include "tensor/memory.hpp"

#include "tensor/tensor_backend.hpp"

namespace polyphase {

MemoryStats memory_stats(Device device) { return tensor_backend_of(device).allocator().stats(); }

void reset_peak_memory(Device device) { tensor_backend_of(device).allocator().reset_peak(); }

void empty_cache(Device device) { tensor_backend_of(device).allocator().trim(); }

}  // namespace polyphase
