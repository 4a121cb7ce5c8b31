#pragma once
// The GPU's convolutions, on plain contiguous device arrays. No tensors here; no CUDA call waits for the device.

#include <cuda_runtime.h>

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"

namespace polyphase::cuda {

/// Why `algorithm` cannot compute this problem on `device` in `precision`, or nothing where it can. `automatic` can do every
/// problem.
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm,
                                                       Precision precision, int device);

/// y = forward(x, w) + bias. Contiguous device arrays of `problem.dtype` (f32, f64, f16, bf16; halves accumulate in f32);
/// `bias` (C_out) may be null. Every element of y is written. N, or either length, may be zero. Asynchronous on `stream`, which
/// must belong to `device`; scratch memory comes from the allocator. Same inputs, same bits. Throws NotImplemented with
/// can_implement's reason, DTypeError for i64.
void conv_forward(const ConvProblem& problem, const void* x, const Weights& w, const void* bias, void* y, Algorithm algorithm,
                  Precision precision, int device, cudaStream_t stream);

/// x = dgrad(y, w) + bias, where `bias` (C_in) may be null: this is also Conv1d's forward.
void conv_dgrad(const ConvProblem& problem, const void* y, const Weights& w, const void* bias, void* x, Algorithm algorithm,
                Precision precision, int device, cudaStream_t stream);

/// out = epilogue(direction(source, w) + bias), direction forward or dgrad, where that costs no pass of its own; else without
/// the epilogue. Returns whether it was done. `bias` and what the epilogue points at belong to out's channels.
[[nodiscard]] bool conv_activated(const ConvProblem& problem, ConvDirection direction, const void* source, const Weights& w,
                                  const void* bias, void* out, const Epilogue& epilogue, Algorithm algorithm,
                                  Precision precision, int device, cudaStream_t stream);

/// Whether conv_activated() applies `epilogue`, of which it only looks at what there is. A pure function of the arguments and
/// the device, unless the choice is tuned: then it is that of the untuned one.
[[nodiscard]] bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Algorithm algorithm,
                         Precision precision, int device);

/// w = wgrad(x, y): overwritten, not accumulated.
void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm, Precision precision,
                int device, cudaStream_t stream);

}  // namespace polyphase::cuda
