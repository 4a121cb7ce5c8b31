#pragma once
// The epilogue of a convolution whose kernel has no room for it: one launch, however many steps it has.

#include <cuda_runtime.h>

#include "cuda/conv/epilogue/epilogue.cuh"
#include "tensor/dtype.hpp"

namespace polyphase::cuda {

/// Whether a kernel that leaves `epilogue` to finish() writes its sums where they are kept, so that the output is written once.
/// Only to places that are as far from a sector of 32 bytes as the output's: the kernel is the same then.
[[nodiscard]] constexpr bool keeps_first(const Epilogue& epilogue) { return epilogue.before != 0 && epilogue.before % 32 == 0; }

/// out (N, C, L) = epilogue(out), in place, or with `is_kept` epilogue(what is kept), which is there already; contiguous, f32,
/// f64, f16 or bf16, any alignment. What the epilogue points at lies like `out`, its parameters are (C). The bits of
/// finish_in_place(). Nothing is launched for an empty `out`. On `stream`.
void finish(const Epilogue& epilogue, DType dtype, std::int64_t N, std::int64_t C, std::int64_t L, void* out,
            cudaStream_t stream, bool is_kept = false);

}  // namespace polyphase::cuda
