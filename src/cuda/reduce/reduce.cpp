#include "cuda/reduce/reduce.hpp"

#include "cuda/elementwise/copy.hpp"

namespace polyphase::cuda {

void reduce(ReduceOp op, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  if (out.numel() == 0) return;
  if (in.numel() == 0) {
    require<ShapeError>(op != ReduceOp::max && op != ReduceOp::min,
                        "reduce: expected at least one element for max and min, got ", in.shape());
    return fill(out, 0, stream);
  }
  switch (in.dtype()) {
    case DType::f32:
      return reduce_f32(op, out, in, stream);
    case DType::f64:
      return reduce_f64(op, out, in, stream);
    case DType::f16:
      return reduce_f16(op, out, in, stream);
    case DType::bf16:
      return reduce_bf16(op, out, in, stream);
    case DType::i64:
      return reduce_i64(op, out, in, stream);
  }
}

}  // namespace polyphase::cuda
