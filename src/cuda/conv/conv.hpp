#pragma once
// Convolutions on a GPU, on plain contiguous device arrays. No call waits for the device.

#include <cuda_runtime.h>

#include <array>
#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "conv/residual_unit.hpp"
#include "cuda/conv/epilogue/epilogue.cuh"
#include "cuda/conv/packed_weights.hpp"
#include "cuda/conv/source_activation.hpp"
#include "cuda/conv/unit_conv.hpp"

namespace polyphase::cuda {

/// Why `algorithm` cannot compute this problem on `device` in `precision`, or nothing if it can. `automatic` can compute every
/// problem.
[[nodiscard]] std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction, Algorithm algorithm,
                                                       Precision precision, int device);

/// y = forward(x, w) + bias. Contiguous device arrays of `problem.dtype` (f32, f64, f16, bf16; 16-bit types accumulate in f32);
/// `bias` (C_out) may be null. Every element of y is written. N and either length may be zero. Asynchronous on `stream`, which
/// must belong to `device`; scratch memory comes from the allocator. The same inputs give the same bits. Throws NotImplemented
/// with can_implement's reason, and DTypeError for i64.
void conv_forward(const ConvProblem& problem, const void* x, const Weights& w, const void* bias, void* y, Algorithm algorithm,
                  Precision precision, int device, cudaStream_t stream);

/// x = dgrad(y, w) + bias; `bias` (C_in) may be null. This is also Conv1d's forward.
void conv_dgrad(const ConvProblem& problem, const void* y, const Weights& w, const void* bias, void* x, Algorithm algorithm,
                Precision precision, int device, cudaStream_t stream);

/// out = epilogue(direction(activation(source), w) + bias), direction forward or dgrad, if that takes no extra pass; else
/// without the epilogue. Returns whether the epilogue was applied. `bias` and the epilogue's tensors belong to out's channels.
/// An activation only where activates_source() is true.
[[nodiscard]] bool conv_activated(const ConvProblem& problem, ConvDirection direction, const void* source,
                                  const SourceActivation& activation, const Weights& w, const void* bias, void* out,
                                  const Epilogue& epilogue, Algorithm algorithm, Precision precision, int device,
                                  cudaStream_t stream);

/// Whether conv_activated() with these arguments can apply LeakyReLU as it reads the source, or Snake.
[[nodiscard]] bool activates_source(const ConvProblem& problem, ConvDirection direction, const void* source, const void* bias,
                                    void* out, const Epilogue& epilogue, bool is_snake, Algorithm algorithm,
                                    Precision precision, int device);

/// Whether conv_activated() without a bias applies `epilogue`; only the presence of its parts matters. A pure function of the
/// arguments and the device. With tuned choices it answers for the untuned choice.
[[nodiscard]] bool fuses(const ConvProblem& problem, ConvDirection direction, const Epilogue& epilogue, Algorithm algorithm,
                         Precision precision, int device);

/// Computes `unit` in one kernel and returns true; returns false, with nothing done, if none does it or steps are faster.
/// `out` is not x, but may be `average.other`.
[[nodiscard]] bool residual_unit(const ResidualUnit& unit, const void* x, const std::array<UnitConv, 2>& convs,
                                 const UnitAverage& average, void* out, int device, cudaStream_t stream);

/// w = wgrad(x, y): overwritten, not accumulated.
void conv_wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Algorithm algorithm, Precision precision,
                int device, cudaStream_t stream);

}  // namespace polyphase::cuda
