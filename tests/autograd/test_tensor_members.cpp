#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "tensor/tensor.hpp"

namespace pp = polyphase;
using pp::DType;
using pp::Tensor;
using Floats = std::vector<float>;

TEST_CASE("a tensor requires gradients on request") {
  Tensor x = Tensor::ones({2});
  CHECK_FALSE(x.requires_grad());
  CHECK(x.is_leaf());
  x.set_requires_grad(true);
  CHECK(x.requires_grad());
  CHECK(x.is_leaf());
  const Tensor handle = x;
  CHECK(handle.requires_grad());
  x.set_requires_grad(false);
  CHECK_FALSE(handle.requires_grad());
  CHECK(Tensor::zeros({2}, {.requires_grad = true}).requires_grad());
  CHECK(Tensor::randn({2}, {.requires_grad = true}).requires_grad());
  CHECK(Tensor::arange(0, 2, 1, {.requires_grad = true}).requires_grad());
  CHECK_THROWS_WITH_AS((void)Tensor::zeros({2}, {.dtype = DType::i64, .requires_grad = true}),
                       "set_requires_grad: expected a floating-point tensor, got i64", pp::DTypeError);
}

TEST_CASE("only leaves can be switched") {
  Tensor x = Tensor::ones({2}, {.requires_grad = true});
  Tensor y = x * x;
  CHECK_FALSE(y.is_leaf());
  CHECK(y.requires_grad());
  CHECK_THROWS_WITH_AS(y.set_requires_grad(false),
                       "set_requires_grad: expected a leaf, got the output of an operation; use detach()", pp::AutogradError);
}

TEST_CASE("backward adds to grad()") {
  Tensor x = Tensor::from_vector<float>({1, 2, 3});
  x.set_requires_grad(true);
  CHECK_FALSE(x.grad().defined());
  pp::sum(x * x).backward();
  CHECK(x.grad().to_vector<float>() == Floats{2, 4, 6});
  (x * 10.0).backward(Tensor::from_vector<float>({1, 0, -1}));
  CHECK(x.grad().to_vector<float>() == Floats{12, 4, -4});
  x.set_grad({});
  CHECK_FALSE(x.grad().defined());
  CHECK_THROWS_WITH_AS(Tensor().backward(), "backward: the tensor is undefined", pp::Error);
}

TEST_CASE("set_grad takes what fits") {
  Tensor x = Tensor::ones({2}, {.requires_grad = true});
  x.set_grad(Tensor::full({2}, 5));
  CHECK(x.grad().to_vector<float>() == Floats{5, 5});
  CHECK_THROWS_WITH_AS(x.set_grad(Tensor::ones({3})), "set_grad: expected a gradient of shape (2,), got (3,)", pp::ShapeError);
  CHECK_THROWS_WITH_AS(x.set_grad(Tensor::ones({2}, {.dtype = DType::f64})), "set_grad: expected a gradient of f32, got f64",
                       pp::DTypeError);
  CHECK(x.grad().to_vector<float>() == Floats{5, 5});
  x.set_grad(x * x);  // not recorded
  CHECK_FALSE(x.grad().requires_grad());
}

TEST_CASE("detach shares elements and leaves the tape") {
  Tensor x = Tensor::ones({2}, {.requires_grad = true});
  const Tensor y = (x * 3.0).detach();
  CHECK_FALSE(y.requires_grad());
  CHECK(y.is_leaf());
  CHECK(x.detach().storage().shares_with(x.storage()));
  CHECK(x.requires_grad());
}
