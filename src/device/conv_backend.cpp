#include "device/conv_backend.hpp"

#include "tensor/error.hpp"

namespace polyphase {

MapOp map_op_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return MapOp::relu;
    case Activation::leaky_relu:
      return MapOp::leaky_relu;
    case Activation::tanh:
      return MapOp::tanh;
    case Activation::snake:
      return MapOp::snake;
  }
  throw Error("map_op_of: expected an activation, got none");
}

MapOp derivative_of(Activation activation) {
  switch (activation) {
    case Activation::none:
    case Activation::snake:
      break;
    case Activation::relu:
      return MapOp::relu_grad;
    case Activation::leaky_relu:  // the result has its argument's sign: slopes are not negative
      return MapOp::leaky_relu_grad;
    case Activation::tanh:
      return MapOp::tanh_grad;
  }
  throw Error("derivative_of: expected relu, leaky_relu or tanh");
}

}  // namespace polyphase
