#include "device/conv_backend.hpp"

#include <doctest/doctest.h>

namespace pp = polyphase;

TEST_CASE("the functions of an activation") {
  CHECK(pp::map_op_of(pp::Activation::leaky_relu) == pp::MapOp::leaky_relu);
  CHECK(pp::map_op_of(pp::Activation::snake) == pp::MapOp::snake);
  CHECK(pp::derivative_of(pp::Activation::tanh) == pp::MapOp::tanh_grad);
  CHECK_THROWS_WITH_AS((void)pp::map_op_of(pp::Activation::none), "map_op_of: expected an activation, got none", pp::Error);
  CHECK_THROWS_WITH_AS((void)pp::derivative_of(pp::Activation::snake), "derivative_of: expected relu, leaky_relu or tanh",
                       pp::Error);
}
