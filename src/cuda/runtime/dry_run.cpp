#include "cuda/runtime/dry_run.hpp"

#include <shared_mutex>
#include <utility>

#include "cuda/memory/workspace.hpp"
#include "cuda/runtime/recording_lock.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

/// While it exists, work on the stream is recorded into a graph that nobody runs.
class Discarded {
 public:
  explicit Discarded(cudaStream_t stream) : stream_(stream) {
    // Relaxed: what is made at first use, such as cuBLAS' handle, may be made now.
    CHECK_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  }
  ~Discarded() { (void)finish(); }
  Discarded(const Discarded&) = delete;
  Discarded& operator=(const Discarded&) = delete;

  cudaError_t finish() {
    if (stream_ == nullptr) return cudaSuccess;
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(std::exchange(stream_, nullptr), &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    if (status != cudaSuccess) (void)cudaGetLastError();
    return status;
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

std::size_t measure_workspace(int device, const std::function<void(CUstream_st*)>& work) {
  const DeviceScope scope(device);
  const Stream stream(device);
  const StreamGuard guard(stream);
  const std::shared_lock lock = recording_lock();
  const Workspace counting(device);
  Discarded recording(stream.get());
  work(stream.get());
  CHECK_CUDA(recording.finish());
  return counting.most_bytes();
}

bool in_dry_run() noexcept {
  const Workspace* const workspace = Workspace::current();
  return workspace != nullptr && workspace->only_counts();
}

}  // namespace polyphase::cuda
