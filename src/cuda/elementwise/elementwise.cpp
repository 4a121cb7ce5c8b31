#include "cuda/elementwise/elementwise.hpp"

#include <iterator>

#include "cuda/elementwise/snake.hpp"

namespace polyphase::cuda {
namespace {

// Powers with an operation of their own, which is exact or much faster.
MapOp simplify(MapOp op, MapScalars scalars) {
  if (op != MapOp::pow_scalar) return op;
  if (scalars.p == 2) return MapOp::square;
  if (scalars.p == 0.5) return MapOp::sqrt;
  if (scalars.p == -0.5) return MapOp::rsqrt;
  if (scalars.p == -1) return MapOp::reciprocal;
  return op;
}

// In MapOp's order.
// clang-format off
constexpr const char* kNames[] = {
    "add", "sub", "mul", "div", "add_scaled", "affine", "scale_around", "addcmul", "maximum", "minimum", "pow_scalar", "div_scalar", "neg", "abs",
    "sign", "square", "sqrt", "rsqrt", "reciprocal", "exp", "log", "sin", "cos", "clamp", "greater", "greater_equal", "less",
    "less_equal", "equal", "where", "relu", "leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid",
    "relu_grad", "leaky_relu_grad", "elu_grad", "gelu_grad", "gelu_tanh_grad", "silu_grad", "tanh_grad",
    "sigmoid_grad", "softplus", "softplus_grad", "snake", "snake_grad_x", "snake_grad_alpha", "snake_grad_beta",
    "squared_difference", "squared_difference_grad", "smooth_l1", "smooth_l1_grad",
};
// clang-format on
static_assert(std::size(kNames) == static_cast<std::size_t>(MapOp::smooth_l1_grad) + 1, "a name for every MapOp");

void map_by_type(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  if (out.dtype() == DType::i64) return map_i64(op, out, inputs, scalars, stream);
  if (out.numel() == 0) return;
  op = simplify(op, scalars);
  if (op == MapOp::snake && snake_rows(out, inputs, stream)) return;
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

}  // namespace

void map(MapOp op, const Tensor& out, std::span<const Tensor> inputs, MapScalars scalars, cudaStream_t stream) {
  try {
    map_by_type(op, out, inputs, scalars, stream);
  } catch (const DeviceError& error) {  // the kernels are launched in one place: name the function
    throw DeviceError(concat(kNames[static_cast<std::size_t>(op)], ": ", error.what()));
  }
}

}  // namespace polyphase::cuda
