#include "tensor/tensor_backend.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace pp = polyphase;

TEST_CASE("the largest number that uniform draws is the one before the upper end") {
  CHECK(pp::uniform_limit(0, 1, pp::DType::f64) == 1 - std::numeric_limits<double>::epsilon() / 2);
  CHECK(pp::uniform_limit(0, 1, pp::DType::f32) == 1 - std::numeric_limits<float>::epsilon() / 2);
  CHECK(pp::uniform_limit(-2, -1, pp::DType::f32) == -1 - std::numeric_limits<float>::epsilon());
  CHECK(pp::uniform_limit(0, 1, pp::DType::f16) == 1 - 0x1p-11);
  CHECK(pp::uniform_limit(0, 1, pp::DType::bf16) == 1 - 0x1p-8);
  CHECK(pp::uniform_limit(1, 1 + 1e-12, pp::DType::f32) == 1);  // one number in f32
}

TEST_CASE("a mean is seen in the shape of what it was taken of") {
  pp::Moments moments;
  moments.mean = pp::Tensor::from_vector<double>({1, 2}, {2, 1});
  moments.centred = pp::Tensor::zeros({2, 3});
  const pp::Tensor everywhere = moments.mean_everywhere();
  CHECK(everywhere.shape() == pp::Shape{2, 3});
  CHECK(everywhere.to_vector<double>() == std::vector<double>{1, 1, 1, 2, 2, 2});
}

TEST_CASE("a device has one backend") {
  CHECK(&pp::tensor_backend_of(pp::Device::cpu()) == &pp::tensor_backend_of(pp::Device::cpu()));
}
