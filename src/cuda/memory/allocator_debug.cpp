#include <algorithm>
#include <array>
#include <utility>

#include "cuda/memory/allocator_caching.hpp"
#include "cuda/runtime/graph.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kGuardByte = 0xA5;
constexpr int kPoison = 0xFF;  // NaN in every float type

}  // namespace

void* GuardedAllocator::allocate(std::size_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    if (!damage_.empty()) throw DeviceError(std::exchange(damage_, {}));
  }
  if (bytes == 0) return nullptr;
  char* block = static_cast<char*>(under_.allocate(bytes + 2 * kGuard));
  if (capturing()) {
    const std::scoped_lock lock(mutex_);
    recorded_.insert(block);
  }
  const DeviceScope scope(device_);
  const cudaStream_t stream = current_stream(device_);
  CHECK_CUDA(cudaMemsetAsync(block, kGuardByte, kGuard, stream));
  CHECK_CUDA(cudaMemsetAsync(block + kGuard, kPoison, bytes, stream));
  CHECK_CUDA(cudaMemsetAsync(block + kGuard + bytes, kGuardByte, kGuard, stream));
  return block + kGuard;
}

void GuardedAllocator::deallocate(void* pointer, std::size_t bytes) noexcept {
  if (pointer == nullptr) return;
  try {
    const bool is_recorded = [&] {
      const std::scoped_lock lock(mutex_);
      return recorded_.erase(base(pointer)) != 0;
    }();
    // Nothing runs during a capture, so there is nothing to check. NaN written into an existing block would be written again at
    // each replay, for any later owner of the block.
    if (!capturing()) {
      const DeviceScope scope(device_);
      CHECK_CUDA(synchronize_device());  // guards may still be in flight, and other streams may use the block
      if (!is_recorded) check_guards(pointer, bytes);
      CHECK_CUDA(cudaMemsetAsync(base(pointer), kPoison, bytes + 2 * kGuard, current_stream(device_)));
    }
  } catch (const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (damage_.empty()) damage_ = error.what();
  }
  under_.deallocate(base(pointer), bytes + 2 * kGuard);
}

void GuardedAllocator::check_guards(void* pointer, std::size_t bytes) {
  const cudaStream_t stream = current_stream(device_);
  std::array<std::array<unsigned char, kGuard>, 2> guards{};
  const char* data = static_cast<const char*>(pointer);
  CHECK_CUDA(cudaMemcpyAsync(guards[0].data(), data - kGuard, kGuard, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaMemcpyAsync(guards[1].data(), data + bytes, kGuard, cudaMemcpyDeviceToHost, stream));
  CHECK_CUDA(cudaStreamSynchronize(stream));
  for (std::size_t side = 0; side < 2; ++side) {
    const auto written =
        std::count_if(guards[side].begin(), guards[side].end(), [](unsigned char byte) { return byte != kGuardByte; });
    require<DeviceError>(written == 0, "cuda:", device_, ": memory overrun: ", written, " of the ", kGuard, " bytes ",
                         side == 0 ? "before" : "after", " a block of ", bytes, " bytes were written");
  }
}

void* PlainAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  refuse_other_device(device_);
  const std::scoped_lock lock(mutex_);
  void* pointer = nullptr;
  const bool fails = (failure_hook_ && failure_hook_(bytes)) || bytes > limit_ - std::min(limit_, stats_.live_bytes);
  if (!fails) {
    const DeviceScope scope(device_);
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    const cudaError_t status = cudaMalloc(&pointer, bytes);
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    if (status == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      pointer = nullptr;
    } else {
      check(status, "cudaMalloc", __FILE__, __LINE__);
    }
  }
  if (pointer == nullptr) throw_out_of_memory(device_, bytes, stats_, limit_);
  live_[reinterpret_cast<Address>(pointer)] = {bytes, ++stats_.allocations, captured_graph()};
  stats_.live_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  ++stats_.live_blocks;
  return pointer;
}

void PlainAllocator::deallocate(void* pointer, std::size_t) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = live_.find(reinterpret_cast<Address>(pointer));
  if (found == live_.end()) return;
  const std::uint64_t user = captured_graph() != 0 ? captured_graph() : found->second.graph;
  stats_.live_bytes -= found->second.bytes;
  --stats_.live_blocks;
  live_.erase(found);
  if (user != 0) {
    kept_.emplace_back(user, pointer);
  } else {
    (void)cudaFree(pointer);
  }
}

void PlainAllocator::release_graph(std::uint64_t graph) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(kept_, [&](const auto& kept) {
    if (kept.first != graph) return false;
    (void)cudaFree(kept.second);
    return true;
  });
  for (auto& [address, block] : live_)
    if (block.graph == graph) block.graph = 0;
}

MemoryStats PlainAllocator::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

void PlainAllocator::reset_peak() {
  const std::scoped_lock lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

void PlainAllocator::set_limit(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  limit_ = bytes;
}

void PlainAllocator::set_failure_hook(std::function<bool(std::size_t)> hook) {
  const std::scoped_lock lock(mutex_);
  failure_hook_ = std::move(hook);
}

BlockPoolStats PlainAllocator::pool_stats() const {
  const std::scoped_lock lock(mutex_);
  return {.mapped_bytes = stats_.live_bytes, .peak_mapped_bytes = stats_.peak_bytes, .growths = stats_.allocations};
}

std::string PlainAllocator::snapshot() const {
  const MemoryStats stats = this->stats();
  return concat("{\"stats\": {\"live_bytes\": ", stats.live_bytes, ", \"live_blocks\": ", stats.live_blocks,
                ", \"peak_bytes\": ", stats.peak_bytes, ", \"allocations\": ", stats.allocations, "}, \"pools\": []}");
}

std::vector<LiveBlock> PlainAllocator::live_blocks(std::uint64_t since) const {
  const std::scoped_lock lock(mutex_);
  std::vector<LiveBlock> live;
  for (const auto& [address, block] : live_) {
    if (block.serial > since) live.push_back({address, block.bytes, block.serial});
  }
  std::sort(live.begin(), live.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.serial < b.serial; });
  return live;
}

}  // namespace polyphase::cuda
