#include "tensor/shape.hpp"

#include <doctest/doctest.h>

#include "tensor/error.hpp"

namespace pp = polyphase;
using pp::Shape;

TEST_CASE("a shape behaves like a short vector") {
  Shape shape{4, 8};
  shape.push_back(100);
  CHECK(shape == Shape{4, 8, 100});
  CHECK(shape.rank() == 3);
  CHECK(shape.back() == 100);
  shape.insert(0, 2);
  CHECK(shape == Shape{2, 4, 8, 100});
  shape.insert(4, 3);
  CHECK(shape == Shape{2, 4, 8, 100, 3});
  shape.erase(1);
  CHECK(shape == Shape{2, 8, 100, 3});
  shape[0] = 7;
  CHECK(shape == Shape(std::vector<std::int64_t>{7, 8, 100, 3}));
  CHECK(Shape::filled(2, 5) == Shape{5, 5});
  CHECK_FALSE(Shape{1, 2} == Shape{1, 2, 3});
  CHECK_FALSE(Shape{1, 2} == Shape{1, 3});
  CHECK(Shape{}.empty());
}

TEST_CASE("what does not fit is refused") {
  Shape full = Shape::filled(pp::kMaxRank, 1);
  CHECK_THROWS_WITH_AS(full.push_back(1), "shape: expected at most 8 dimensions, got more", pp::ShapeError);
  CHECK_THROWS_AS(Shape(std::vector<std::int64_t>(9, 1)), pp::ShapeError);
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5, 6, 7, 8, 9}), pp::ShapeError);
  Shape two{1, 2};
  CHECK_THROWS_WITH_AS(two.insert(3, 1), "shape: expected a position in [0, 2], got 3", pp::ShapeError);
  CHECK_THROWS_WITH_AS(two.erase(2), "shape: expected a position in [0, 2), got 2", pp::ShapeError);
  CHECK(two == Shape{1, 2});
}

TEST_CASE("numel") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{4, 8, 100}.numel() == 3200);
  CHECK(Shape{std::int64_t{1} << 40, std::int64_t{1} << 40, 0}.numel() == 0);
  CHECK(Shape{3, std::int64_t{1} << 60}.numel() == 3 * (std::int64_t{1} << 60));
  CHECK_THROWS_WITH_AS((void)(Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}.numel()),
                       "shape: the number of elements of (1099511627776, 1099511627776) does not fit 64 bits", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)(Shape{0, -2}.numel()), "shape: expected sizes of at least 0, got (0, -2)", pp::ShapeError);
}

TEST_CASE("printing") {
  CHECK(pp::to_string(Shape{4, 8, 100}) == "(4, 8, 100)");
  CHECK(pp::to_string(Shape{3}) == "(3,)");
  CHECK(pp::to_string(Shape{}) == "()");
}

TEST_CASE("contiguous strides") {
  CHECK(pp::contiguous_strides(Shape{4, 8, 100}) == Shape{800, 100, 1});
  CHECK(pp::contiguous_strides(Shape{}) == Shape{});
  CHECK(pp::contiguous_strides(Shape{2, 0, 3}) == Shape{3, 3, 1});
  CHECK_THROWS_AS((void)pp::contiguous_strides(Shape{0, std::int64_t{1} << 40, std::int64_t{1} << 40}), pp::ShapeError);
}

TEST_CASE("broadcasting") {
  CHECK(pp::broadcast_shapes("add", Shape{4, 1, 3}, Shape{5, 1}) == Shape{4, 5, 3});
  CHECK(pp::broadcast_shapes("add", Shape{}, Shape{2, 3}) == Shape{2, 3});
  CHECK(pp::broadcast_shapes("add", Shape{1, 3}, Shape{0, 3}) == Shape{0, 3});
  CHECK_THROWS_WITH_AS((void)pp::broadcast_shapes("add", Shape{2, 3}, Shape{2}),
                       "add: expected shapes that broadcast together, got (2, 3) and (2,)", pp::ShapeError);
  CHECK_THROWS_AS((void)pp::broadcast_shapes("add", Shape{0}, Shape{2}), pp::ShapeError);
}

TEST_CASE("dimensions count from the end as well") {
  CHECK(pp::normalize_dim("f", 1, 3) == 1);
  CHECK(pp::normalize_dim("f", -1, 3) == 2);
  CHECK(pp::normalize_dim("f", -3, 3) == 0);
  CHECK_THROWS_WITH_AS((void)pp::normalize_dim("f", 3, 3), "f: expected a dimension in [-3, 3), got 3", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)pp::normalize_dim("f", -4, 3), "f: expected a dimension in [-3, 3), got -4", pp::ShapeError);
  CHECK_THROWS_WITH_AS((void)pp::normalize_dim("f", 0, 0),
                       "f: expected a tensor with dimensions, got dimension 0 of one of rank 0", pp::ShapeError);
}
