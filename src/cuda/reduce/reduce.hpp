#pragma once
// Reductions on the device (Backend::reduce).

#include <cuda_runtime.h>

#include "tensor/map_op.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::cuda {

/// As in tensor/tensor_backend.hpp. Accumulated in f64 (i64 wraps around), in an order that depends on shape and strides alone.
/// Throws ShapeError for max and min of an empty set.
void reduce(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream);

/// As in tensor/tensor_backend.hpp (reduce_map.cu): accumulated in f64, in an order that depends on the number of elements and
/// on whether both tensors begin at a multiple of 16 bytes. One launch for up to kShortPair elements, else two.
void reduce_map(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, MapScalars scalars, cudaStream_t stream);
/// Its gradient for tensors of 16 bits, as in tensor/tensor_backend.hpp. One launch.
void pair_gradient(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient, MapScalars scalars,
                   cudaStream_t stream);

// reduce() for one element type each (reduce_f32.cu, ...); neither tensor is empty.
void reduce_f32(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream);
void reduce_f64(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream);
void reduce_f16(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream);
void reduce_bf16(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream);
void reduce_i64(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream);

}  // namespace polyphase::cuda
