#include "ops/dispatch.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("tensors must share a dtype; undefined ones do not count") {
  const Tensor a = Tensor::ones({2});
  const Tensor b = Tensor::ones({2}, {.dtype = DType::f64});
  CHECK_NOTHROW(ops::require_alike("op", std::array{Tensor(), a, Tensor(), a}));
  CHECK(error_of<DTypeError>([&] {
          return ops::require_alike("op", std::array{Tensor(), a, b}), 0;
        }) == "op: expected tensors of one dtype, got f32 and f64");
}

TEST_CASE("integers are refused where floating point is needed") {
  CHECK_NOTHROW(ops::require_floating("op", Tensor::ones({1}, {.dtype = DType::bf16})));
  CHECK(error_of<DTypeError>([&] { return ops::require_floating("op", Tensor::ones({1}, {.dtype = DType::i64})), 0; }) ==
        "op: expected a floating-point tensor, got i64");
}

TEST_CASE("broadcast_view repeats without copying") {
  const Tensor column = Tensor::from_vector<double>({1, 2}, {2, 1});
  const Tensor wide = ops::broadcast_view(column, {3, 2, 2});
  CHECK(wide.raw() == column.raw());
  CHECK(wide.to_vector<double>() == std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2});
}

TEST_CASE("map broadcasts, refuses what does not fit, and does nothing on empty tensors") {
  const Tensor row = Tensor::from_vector<double>({1, 2, 3});
  const Tensor column = Tensor::from_vector<double>({10, 20}, {2, 1});
  CHECK(ops::map("op", MapOp::add, {row, column}).to_vector<double>() == std::vector<double>{11, 12, 13, 21, 22, 23});
  CHECK(ops::map("op", MapOp::add, {row, random_f64({0, 1})}).shape() == Shape{0, 3});
  CHECK_THROWS_AS(static_cast<void>(ops::map("op", MapOp::add, {row, random_f64({2})})), ShapeError);
}

TEST_CASE("reduce gives zeros for empty sums") {
  CHECK(ops::reduce(ReduceOp::sum, random_f64({2, 0}), {2, 1}).to_vector<double>() == std::vector<double>{0, 0});
  CHECK(ops::reduce(ReduceOp::sum, random_f64({0, 2}), {0, 1}).numel() == 0);
}

TEST_CASE("reduce_map takes any strides, and a scale of nothing is kept") {
  const Tensor a = random_f64({3, 4}), b = random_f64({4, 3}).transpose(0, 1);
  const double of_copies = ops::reduce_map(MapOp::squared_difference, a, b.contiguous(), {0, 2}).item();
  CHECK(ops::reduce_map(MapOp::squared_difference, a, b, {0, 2}).item() == of_copies);
  CHECK(of_copies > 0);
  const Tensor none = random_f64({0, 4});
  CHECK(ops::reduce_map(MapOp::squared_difference, none, none, {0, 1}).item() == 0);
  CHECK(std::isnan(ops::reduce_map(MapOp::smooth_l1, none, none, {1, std::numeric_limits<double>::infinity()}).item()));
}
