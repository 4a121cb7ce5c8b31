#include "ops/linear.hpp"

#include <doctest/doctest.h>

#include "autograd/gradcheck.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Inputs = std::vector<Tensor>;

// sum over k of a[..., m, k] * b[..., k, n], by broadcasting.
Tensor plain_matmul(const Tensor& a, const Tensor& b) { return sum(a.unsqueeze(-1) * b.unsqueeze(-3), {-2}); }

const std::vector<std::pair<Shape, Shape>> kShapes = {
    {{2, 3}, {3, 4}}, {{5, 2, 3}, {5, 3, 4}},    {{5, 2, 3}, {3, 4}},          {{2, 3}, {5, 3, 4}},
    {{1, 1}, {1, 1}}, {{2, 1, 2, 3}, {3, 3, 2}}, {{2, 3, 2, 2}, {1, 3, 2, 1}}, {{3, 1, 2}, {1, 2, 2}},
};

}  // namespace

TEST_CASE("matmul agrees with the plain sum, batches broadcast") {
  for (const auto& shapes : kShapes) {
    const Shape& a_shape = shapes.first;
    const Shape& b_shape = shapes.second;
    CAPTURE(to_string(a_shape));
    CAPTURE(to_string(b_shape));
    const Tensor a = random_f64(a_shape, 1);
    const Tensor b = random_f64(b_shape, 2);
    CHECK(max_difference(matmul(a, b), plain_matmul(a, b)) <= kDoubleSum);
    CHECK(max_difference(matmul(a.to(DType::f32), b.to(DType::f32)), plain_matmul(a, b)) <= kFloatSum);
  }
}

TEST_CASE("matmul: gradients") {
  for (const auto& shapes : kShapes) {
    const Shape& a_shape = shapes.first;
    const Shape& b_shape = shapes.second;
    CAPTURE(to_string(a_shape));
    CAPTURE(to_string(b_shape));
    const auto function = [](const Inputs& in) { return matmul(in[0], in[1]); };
    CHECK(gradcheck(function, {leaf_f64(a_shape, 1), leaf_f64(b_shape, 2)}) == "");
    CHECK(gradcheck(function, {random_f64(a_shape, 1), leaf_f64(b_shape, 2)}) == "");
  }
  const auto with_itself = [](const Inputs& in) { return matmul(in[0], in[0].transpose(0, 1)); };
  CHECK(gradcheck(with_itself, {leaf_f64({2, 3})}) == "");
}

TEST_CASE("matmul: strided operands and empty ones") {
  const Tensor a = random_f64({4, 6}, 1).transpose(0, 1).slice(0, 0, 6, 2);
  const Tensor b = random_f64({3, 4}, 2).transpose(0, 1);
  CHECK(max_difference(matmul(a, b), matmul(a.contiguous(), b.contiguous())) <= kDoubleSum);
  CHECK(matmul(random_f64({0, 3}), random_f64({3, 2})).shape() == Shape{0, 2});
  CHECK(matmul(random_f64({2, 0}), random_f64({0, 2})).to_vector<double>() == std::vector<double>{0, 0, 0, 0});
  const auto function = [](const Inputs& in) { return matmul(in[0], in[1]); };
  CHECK(gradcheck(function, {leaf_f64({2, 0}), leaf_f64({0, 3})}) == "");
  CHECK(gradcheck(function, {leaf_f64({0, 2}), leaf_f64({2, 3})}) == "");
  CHECK(gradcheck(function, {leaf_f64({0, 2, 2}), leaf_f64({2, 3})}) == "");
}

TEST_CASE("linear: values and gradients for every rank of x") {
  for (const Shape& shape : {Shape{3}, Shape{4, 3}, Shape{2, 2, 3}, Shape{0, 3}}) {
    CAPTURE(to_string(shape));
    const Tensor x = leaf_f64(shape, 1);
    const Tensor w = leaf_f64({2, 3}, 2);
    const Tensor b = leaf_f64({2}, 3);
    const Tensor rows = x.detach().reshape({shape.numel() / 3, 3});
    Shape out = shape;
    out[shape.rank() - 1] = 2;
    const Tensor expected = (plain_matmul(rows, w.detach().transpose(0, 1)) + b.detach()).reshape(out);
    CHECK(max_difference(linear(x, w, b), expected) <= kDoubleSum);
    CHECK(gradcheck([](const Inputs& in) { return linear(in[0], in[1], in[2]); }, {x, w, b}) == "");
    CHECK(gradcheck([](const Inputs& in) { return linear(in[0], in[1]); }, {x, w}) == "");
    CHECK(gradcheck([](const Inputs& in) { return linear(in[0], in[1], in[2]); }, {x.detach(), w.detach(), b}) == "");
  }
  const auto strided = [](const Inputs& in) { return linear(in[0].transpose(0, 1), in[1].transpose(0, 1)); };
  CHECK(gradcheck(strided, {leaf_f64({3, 4}), leaf_f64({3, 2}, 2)}) == "");
}

TEST_CASE("16-bit products accumulate in f32") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor a = uniform_f64({3, 64}, -0.3, 0.3, 1).to(dtype);
    const Tensor b = uniform_f64({64, 2}, -0.3, 0.3, 2).to(dtype);
    CHECK(max_difference(matmul(a, b), matmul(a.to(DType::f64), b.to(DType::f64))) <=
          (dtype == DType::f16 ? kHalfRounding : kBFloat16Rounding));
  }
}

TEST_CASE("errors") {
  const Tensor x = random_f64({4, 8});
  CHECK(error_of<ShapeError>([&] { return matmul(x, random_f64({7, 2})); }) == "matmul: expected b (..., K=8, N), got (7, 2)");
  CHECK(error_of<ShapeError>([&] { return matmul(x, random_f64({8})); }) ==
        "matmul: expected (..., M, K) and (..., K, N), got (4, 8) and (8,)");
  CHECK(error_of<ShapeError>([&] { return matmul(random_f64({2, 4, 8}), random_f64({3, 8, 2})); }).find("matmul: ") == 0);
  CHECK(error_of<ShapeError>([&] { return linear(x, random_f64({2, 16})); }) == "linear: expected x (..., in=16), got (4, 8)");
  CHECK(error_of<ShapeError>([&] { return linear(x, random_f64({8})); }) == "linear: expected weight (out, in), got (8,)");
  CHECK(error_of<ShapeError>([&] {
          return linear(x, random_f64({2, 8}), random_f64({3}));
        }) == "linear: expected bias (out=2), got (3,)");
  CHECK(error_of<DTypeError>([&] {
          return linear(x, Tensor::ones({2, 8}));
        }) == "linear: expected tensors of one dtype, got f64 and f32");
  CHECK(error_of<Error>([&] { return linear(x, {}); }) == "linear: weight is undefined");
  CHECK(error_of<Error>([&] { return linear({}, x); }) == "linear: x is undefined");
  CHECK(error_of<Error>([&] { return matmul({}, x); }) == "matmul: a is undefined");
  CHECK(error_of<Error>([&] { return matmul(x, {}); }) == "matmul: b is undefined");
}
