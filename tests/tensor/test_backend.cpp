#include "tensor/backend.hpp"

#include <doctest/doctest.h>

namespace pp = polyphase;

TEST_CASE("there is one cpu") {
  CHECK(pp::device_count(pp::DeviceType::cpu) == 1);
  CHECK(&pp::backend_of(pp::Device::cpu()) == &pp::backend_of(pp::Device::cpu()));
  CHECK_THROWS_WITH_AS((void)pp::backend_of({pp::DeviceType::cpu, 1}), "cpu:1: expected cpu, which is a single device",
                       pp::DeviceError);
}

TEST_CASE("the functions of an activation") {
  CHECK(pp::map_op_of(pp::Activation::leaky_relu) == pp::MapOp::leaky_relu);
  CHECK(pp::map_op_of(pp::Activation::snake) == pp::MapOp::snake);
  CHECK(pp::derivative_of(pp::Activation::tanh) == pp::MapOp::tanh_grad);
  CHECK_THROWS_WITH_AS((void)pp::map_op_of(pp::Activation::none), "map_op_of: expected an activation, got none", pp::Error);
  CHECK_THROWS_WITH_AS((void)pp::derivative_of(pp::Activation::snake), "derivative_of: expected relu, leaky_relu or tanh",
                       pp::Error);
}

TEST_CASE("a CUDA device that is not there is named") {
  const int count = pp::device_count(pp::DeviceType::cuda);
  CHECK(count >= 0);
  CHECK_THROWS_WITH_AS((void)pp::backend_of(pp::Device::cuda(count)), doctest::Contains(pp::concat("cuda:", count).c_str()),
                       pp::DeviceError);
}
