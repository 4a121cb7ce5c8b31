#include "cuda/linear/blas.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace polyphase::cuda {
namespace {

/// A thread's handles by device; destroyed with the thread.
class Handles {
 public:
  Handles() = default;
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    for (cublasHandle_t handle : handles_)
      if (handle != nullptr) (void)cublasDestroy(handle);
  }
  cublasHandle_t of(int device) {
    const auto index = static_cast<std::size_t>(device);
    if (handles_.size() <= index) handles_.resize(index + 1, nullptr);
    if (handles_[index] == nullptr) {
      cublasHandle_t handle = nullptr;
      CHECK_CUBLAS(cublasCreate(&handle));
      handles_[index] = handle;
      CHECK_CUBLAS(cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    }
    return handles_[index];
  }

 private:
  std::vector<cublasHandle_t> handles_;
};

cublasHandle_t handle_of(int device) {
  thread_local Handles handles;
  return handles.of(device);
}

}  // namespace

void check_blas(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  (void)cudaGetLastError();
  const char* base = std::strrchr(file, '/');
  throw DeviceError(concat("cuda: ", call, " failed: ", cublasGetStatusName(status), " (", cublasGetStatusString(status),
                           ") at ", base != nullptr ? base + 1 : file, ":", line));
}

BlasScope::BlasScope(int device, cudaStream_t stream) : workspace_(kBlasWorkspaceBytes, device), handle_(handle_of(device)) {
  CHECK_CUBLAS(cublasSetStream(handle_, stream));  // sets cuBLAS' own workspace, so ours is set afterwards
  CHECK_CUBLAS(cublasSetWorkspace(handle_, workspace_.as<void>(), workspace_.bytes()));
}

}  // namespace polyphase::cuda
