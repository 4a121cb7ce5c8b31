#include "cuda/memory/allocator.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "cuda/memory/allocator_caching.hpp"
#include "cuda/memory/workspace.hpp"
#include "cuda/runtime/graph.hpp"

namespace polyphase::cuda {
namespace {

thread_local std::uint64_t thread_graph = 0;

constexpr std::size_t kDevices = 64;

std::array<std::atomic<DeviceAllocator*>, kDevices> known{};  // null: not made yet

/// Made at first use and never destroyed: tensors in static storage may outlive main.
DeviceAllocator* make_chosen(int device) {
  const char* setting = std::getenv("POLYPHASE_CUDA_ALLOCATOR");
  const std::string_view kind = setting != nullptr ? setting : "cache";
  require<DeviceError>(kind.empty() || kind == "cache" || kind == "debug" || kind == "malloc",
                       "POLYPHASE_CUDA_ALLOCATOR: expected cache, debug or malloc, got ", kind);
  if (kind == "malloc" || !VirtualMemory::supported(device)) return new PlainAllocator(device);
  auto* caching = new CachingAllocator(device);
  if (kind == "debug") return new GuardedAllocator(device, *caching);
  return caching;
}

DeviceAllocator* make_allocator(int device) { return new WorkspaceAllocator(device, *make_chosen(device)); }

}  // namespace

void* WorkspaceAllocator::allocate(std::size_t bytes) {
  Workspace* const workspace = Workspace::current();
  if (workspace == nullptr) return under_.allocate(bytes);
  if (!workspace->only_counts()) return workspace->take(device_, bytes);
  void* const block = under_.allocate(bytes);
  try {
    workspace->count(device_, block, bytes);
  } catch (const Error&) {
    under_.deallocate(block, bytes);
    throw;
  }
  return block;
}

void WorkspaceAllocator::deallocate(void* pointer, std::size_t bytes) noexcept {
  Workspace* const workspace = Workspace::current();
  if (workspace != nullptr && workspace->contains(pointer)) return workspace->release(pointer, bytes);
  if (workspace != nullptr && workspace->only_counts()) (void)workspace->uncount(pointer, bytes);
  under_.deallocate(pointer, bytes);
}

void WorkspaceAllocator::record_stream(void* pointer, StreamId stream) {
  const Workspace* const workspace = Workspace::current();
  if (workspace == nullptr || !workspace->contains(pointer)) under_.record_stream(pointer, stream);
}

std::uint64_t DeviceAllocator::captured_graph() { return thread_graph; }

void DeviceAllocator::begin_capture(std::uint64_t graph) { thread_graph = graph; }

void DeviceAllocator::end_capture(std::uint64_t graph) {
  thread_graph = 0;
  finish_capture(graph);
}

std::uint64_t new_graph_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

DeviceAllocator& allocator(int device) {
  static std::mutex mutex;
  const auto index = static_cast<std::size_t>(device);
  if (index < kDevices) {
    if (DeviceAllocator* found = known[index].load(std::memory_order_acquire)) return *found;
  }
  (void)properties(device);  // throws if there is no such device
  require<DeviceError>(index < kDevices, "cuda: expected a device below ", kDevices, ", got cuda:", device);
  const std::scoped_lock lock(mutex);
  if (known[index].load() == nullptr) known[index].store(make_allocator(device), std::memory_order_release);
  return *known[index].load();
}

void for_each_allocator(const std::function<void(DeviceAllocator&)>& visit) {
  for (const auto& each : known)
    if (DeviceAllocator* found = each.load(std::memory_order_acquire)) visit(*found);
}

std::string leak_report(const DeviceAllocator& allocator, std::uint64_t since) {
  const std::vector<LiveBlock> live = allocator.live_blocks(since);
  if (live.empty()) return "";
  std::size_t bytes = 0;
  for (const LiveBlock& block : live) bytes += block.bytes;
  std::string text = concat(live.size(), live.size() == 1 ? " block, " : " blocks, ", bytes, " bytes live:");
  const char* separator = " ";
  for (const LiveBlock& block : live)
    text += concat(std::exchange(separator, ", "), "#", block.serial, " ", block.bytes, " bytes");
  return text;
}

void throw_out_of_memory(int device, std::size_t bytes, const MemoryStats& stats, std::size_t limit) {
  std::size_t free = 0, total = 0;
  {
    const DeviceScope scope(device);
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) (void)cudaGetLastError();
  }
  const std::string limited = limit < total ? concat(", limit ", limit) : "";
  throw OutOfMemory(concat("cuda:", device, ": out of memory: asked ", bytes, " bytes, live ", stats.live_bytes, ", cached ",
                           stats.cached_bytes, ", free ", free, ", total ", total, limited));
}

CachingAllocator::~CachingAllocator() {
  try {
    const DeviceScope scope(device_);
    (void)synchronize_device();
  } catch (const std::exception&) {
    // The device is lost; its memory goes with the process.
  }
}

void* CachingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  refuse_other_device(device_);
  const auto stream = reinterpret_cast<StreamId>(current_stream(device_));
  void* pointer = pool_.allocate(bytes, stream, captured_graph());
  if (pointer == nullptr) [[unlikely]]
    throw_out_of_memory(device_, bytes, pool_.stats(), pool_.limit());
  return pointer;
}

void CachingAllocator::deallocate(void* pointer, std::size_t) noexcept {
  if (pointer == nullptr) return;
  pool_.deallocate(pointer, reinterpret_cast<StreamId>(current_stream(device_)), captured_graph());
}

}  // namespace polyphase::cuda
