#include "cuda/elementwise.hpp"

namespace polyphase::cuda {
namespace {

// Powers that have an operation of their own, which is exact or much faster.
MapOp simplify(MapOp op, MapScalars scalars) {
  if (op != MapOp::pow_scalar) return op;
  if (scalars.p == 2) return MapOp::square;
  if (scalars.p == 0.5) return MapOp::sqrt;
  if (scalars.p == -0.5) return MapOp::rsqrt;
  if (scalars.p == -1) return MapOp::reciprocal;
  return op;
}

}  // namespace

void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  if (out.dtype() == DType::i64) return map_i64(op, out, inputs, scalars, stream);
  if (out.numel() == 0) return;
  op = simplify(op, scalars);
  switch (out.dtype()) {
    case DType::f64:
      return map_f64(op, out, inputs, scalars, stream);
    case DType::f16:
      return map_f16(op, out, inputs, scalars, stream);
    case DType::bf16:
      return map_bf16(op, out, inputs, scalars, stream);
    default:
      return map_f32(op, out, inputs, scalars, stream);
  }
}

}  // namespace polyphase::cuda
