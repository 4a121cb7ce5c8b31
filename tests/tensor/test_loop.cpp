#include "tensor/loop.hpp"

#include <doctest/doctest.h>

namespace pp = polyphase;

TEST_CASE("dimensions that follow each other in every operand become one") {
  const pp::Tensor out = pp::Tensor::zeros({2, 3, 4});
  const pp::Tensor in = pp::Tensor::zeros({2, 1, 3, 4}).squeeze(1);
  const pp::Loop loop = pp::make_loop(out, {&in, 1});
  CHECK(loop.rank == 1);
  CHECK(loop.count == 24);
  CHECK(loop.inner_size() == 24);
  CHECK(loop.is_flat(0));
  CHECK(loop.is_flat(1));
}

TEST_CASE("a channel's constant keeps three dimensions, one element none") {
  const pp::Tensor out = pp::Tensor::zeros({2, 3, 4});
  const std::array<pp::Tensor, 2> inputs{pp::Tensor::zeros({3, 1}).expand({2, 3, 4}), pp::Tensor::zeros({}).expand({2, 3, 4})};
  const pp::Loop loop = pp::make_loop(out, inputs);
  CHECK(loop.rank == 3);
  CHECK(loop.strides[1][1] == 1);
  CHECK(loop.inner_stride(1) == 0);
  CHECK_FALSE(loop.is_constant(1));
  CHECK(loop.is_constant(2));
  const pp::Tensor one = pp::Tensor::zeros({1, 1});
  CHECK(pp::make_loop(one, {}).rank == 1);
  CHECK(pp::make_loop(one, {}).inner_size() == 1);
}

TEST_CASE("the output's order in memory is the loop's") {
  const pp::Tensor out = pp::Tensor::zeros({5, 3}).transpose(0, 1);  // (3, 5), strides (1, 3)
  const pp::Tensor in = pp::Tensor::zeros({3, 5});
  const pp::Loop loop = pp::make_loop(out, {&in, 1});
  CHECK(loop.rank == 2);
  CHECK(loop.sizes[0] == 5);
  CHECK(loop.inner_stride(0) == 1);
  CHECK(loop.inner_stride(1) == 5);
  CHECK(loop.is_flat(0));
  CHECK_FALSE(loop.is_flat(1));
}
