#include "tensor/memory.hpp"

#include "tensor/backend.hpp"

namespace polyphase {

MemoryStats memory_stats(Device device) { return backend_of(device).allocator().stats(); }

void reset_peak_memory(Device device) { backend_of(device).allocator().reset_peak(); }

void empty_cache(Device device) { backend_of(device).allocator().trim(); }

}  // namespace polyphase
