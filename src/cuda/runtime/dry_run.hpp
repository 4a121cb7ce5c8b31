#pragma once
// How much scratch memory work needs, without running it. Internal; no CUDA headers.

#include <cstddef>
#include <functional>

struct CUstream_st;  // what a cudaStream_t points to

namespace polyphase::cuda {

/// The bytes of a Workspace for `work`, which is given a stream and may issue work to it alone. It is recorded and dropped, so
/// that kernels get their arguments but never run; memory that is set to a value must exist. Throws DeviceError if `work` does
/// something that cannot be recorded; exceptions of `work` pass through.
[[nodiscard]] std::size_t measure_workspace(int device, const std::function<void(CUstream_st*)>& work);

/// Whether the calling thread's work is being measured. CUDA records a copy only if its memory exists, so copies are left out
/// then.
[[nodiscard]] bool in_dry_run() noexcept;

}  // namespace polyphase::cuda
