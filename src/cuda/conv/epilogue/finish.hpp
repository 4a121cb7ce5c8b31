#pragma once
// The epilogue as a launch of its own, for kernels that cannot fuse it.

#include <cuda_runtime.h>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "tensor/dtype.hpp"

namespace polyphase::cuda {

/// Whether a kernel that leaves `epilogue` to finish() writes its sums to where the argument is kept, so that the output is
/// written once. Requires the same offset in a 32-byte sector as the output, because the choice of the kernel depends on it.
[[nodiscard]] constexpr bool keeps_first(const Epilogue& epilogue) { return epilogue.before != 0 && epilogue.before % 32 == 0; }

/// out (N, C, L) = epilogue(out) in place, or epilogue(kept) if `is_kept`: the argument is already stored there. Contiguous
/// f32, f64, f16 or bf16 of any alignment. The epilogue's tensors have the layout of `out`, its parameters are (C). Gives the
/// same bits as finish_in_place(). Launches nothing for an empty `out`. Asynchronous on `stream`.
void finish(const Epilogue& epilogue, DType dtype, std::int64_t N, std::int64_t C, std::int64_t L, void* out,
            cudaStream_t stream, bool is_kept = false);

}  // namespace polyphase::cuda
