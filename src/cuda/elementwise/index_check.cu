// One word of host memory per device, mapped to the GPU, holds the first bad position found. The host reads it after it has
// waited.

#include "cuda/elementwise/index_check.hpp"

#include <array>
#include <atomic>
#include <mutex>

#include "cuda/elementwise/index_check.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr std::size_t kDevices = 64;

__global__ void __launch_bounds__(kThreads)
    check_index_kernel(BadIndex* bad, const std::int64_t* __restrict__ index, std::int64_t J, std::int64_t length) {
  for (std::int64_t j = thread_position(); j < J; j += thread_count()) {
    if (index[j] >= 0 && index[j] < length) continue;
    return note_bad_index(bad, index[j], length);  // one is enough
  }
}

std::array<std::atomic<BadIndex*>, kDevices> places{};  // null: nothing was checked there yet

}  // namespace

BadIndex* bad_index_of(int device) {
  static std::mutex mutex;
  std::atomic<BadIndex*>& place = places.at(static_cast<std::size_t>(device));
  if (BadIndex* known = place.load(std::memory_order_acquire)) return known;
  const std::scoped_lock lock(mutex);
  if (place.load() == nullptr) {
    const DeviceScope scope(device);
    void* memory = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // the first check may be recorded
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    const cudaError_t status = cudaHostAlloc(&memory, sizeof(BadIndex), cudaHostAllocMapped | cudaHostAllocPortable);
    CHECK_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK_CUDA(status);
    place.store(new (memory) BadIndex{}, std::memory_order_release);
  }
  return place.load();
}

void check_index(const Tensor& index, std::int64_t length, cudaStream_t stream) {
  const std::int64_t J = index.numel();
  if (J == 0) return;
  BadIndex* const bad = bad_index_of(index.device().index);
  check_index_kernel<<<grid_for(J), kThreads, 0, stream>>>(bad, index.data<std::int64_t>(), J, length);
  check_launch("index_select: check");
}

void report_bad_index(int device) {
  BadIndex* const bad = places.at(static_cast<std::size_t>(device)).load(std::memory_order_acquire);
  if (bad == nullptr) return;
  const std::atomic_ref<unsigned> state(bad->state);
  if (state.load(std::memory_order_acquire) != BadIndex::kWritten) return;
  const std::int64_t position = bad->position, length = bad->length;
  unsigned written = BadIndex::kWritten;
  if (!state.compare_exchange_strong(written, BadIndex::kNothing)) return;  // another thread has reported it
  throw ShapeError(concat("index_select: expected positions in [0, ", length, "), got ", position, " (on cuda:", device,
                          ", in an earlier call)"));
}

}  // namespace polyphase::cuda
