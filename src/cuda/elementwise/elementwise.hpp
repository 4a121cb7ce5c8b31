#pragma once
// Elementwise functions on the device (Backend::map).

#include <cuda_runtime.h>

#include <span>

#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// out[i] = op(inputs[0][i], ...) as in tensor/tensor_backend.hpp. Throws DTypeError if i64 has no such function.
void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream);

// map() for one element type each (elementwise_f32.cu, ...); out is not empty.
void map_f32(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream);
void map_f64(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream);
void map_f16(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream);
void map_bf16(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream);
void map_i64(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream);

}  // namespace polyphase::cuda
