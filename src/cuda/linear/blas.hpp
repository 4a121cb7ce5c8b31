#pragma once
// cuBLAS: one handle per thread and device, made for the first product. Internal: includes cuBLAS headers.

#include <cublas_v2.h>

#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {

/// Scratch memory of every product.
inline constexpr std::size_t kBlasWorkspaceBytes = std::size_t{8} << 20;

/// Throws DeviceError `cuda: call failed: CUBLAS_STATUS_X at file:line` unless `status` is CUBLAS_STATUS_SUCCESS.
void check_blas(cublasStatus_t status, const char* call, const char* file = __builtin_FILE(), int line = __builtin_LINE());
#define CHECK_CUBLAS(call) ::polyphase::cuda::check_blas((call), #call)

/// The calling thread's handle on a device, set to `stream`, with a workspace from the allocator until the end of the scope.
/// The workspace has the same size for every product, so the algorithm and the bits depend on nothing but the problem.
/// Reduced-precision sums are off. Scalars are host pointers. The device must be current.
class BlasScope {
 public:
  BlasScope(int device, cudaStream_t stream);
  BlasScope(const BlasScope&) = delete;
  BlasScope& operator=(const BlasScope&) = delete;
  [[nodiscard]] cublasHandle_t handle() const { return handle_; }
  operator cublasHandle_t() const { return handle_; }  // NOLINT: convertible to the handle

 private:
  Buffer workspace_;
  cublasHandle_t handle_;
};

/// For one call: cublasX(blas_handle(device, stream), ...). The workspace is freed at the end of that statement.
[[nodiscard]] inline BlasScope blas_handle(int device, cudaStream_t stream) { return {device, stream}; }

}  // namespace polyphase::cuda
