#include "ops/argmin.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "ops/elementwise.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Positions = std::vector<std::int64_t>;

/// A plain search over the last of two dimensions.
Positions plain_argmin(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).to_vector<double>();
  const auto columns = static_cast<std::size_t>(x.size(1));
  Positions found;
  for (std::size_t row = 0; row < values.size(); row += columns) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < columns; ++i)
      if (values[row + i] < values[row + best]) best = i;
    found.push_back(static_cast<std::int64_t>(best));
  }
  return found;
}

}  // namespace

TEST_CASE("positions by hand, over either dimension") {
  const Tensor x = Tensor::from_vector<double>({3, 1, 2, 0, 5, 4}, {2, 3}, default_device());
  CHECK(argmin(x, 1).to_vector<std::int64_t>() == Positions{1, 0});
  CHECK(argmax(x, 1).to_vector<std::int64_t>() == Positions{0, 1});
  CHECK(argmin(x, 0).to_vector<std::int64_t>() == Positions{1, 0, 0});
  CHECK(argmax(x, -2).to_vector<std::int64_t>() == Positions{0, 1, 1});
  CHECK(argmin(x, 0).shape() == Shape{3});
}

TEST_CASE("every dtype, and rows that are no multiple of a vector") {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const Tensor x = random_f64({37, 1031}, 3).to(dtype);  // in 16 bits some numbers are equal
    CHECK(argmin(x, 1).to_vector<std::int64_t>() == plain_argmin(x));
    CHECK(argmax(x, 1).to_vector<std::int64_t>() == plain_argmin(x.to(DType::f64) * -1.0));
  }
}

TEST_CASE("the first of equals, and a NaN before any number") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::from_vector<double>({2, 1, 1, 5, kNan, kNan, kInfinity, -kInfinity, 0}, {3, 3}, default_device());
  CHECK(argmin(x, 1).to_vector<std::int64_t>() == Positions{1, 1, 1});
  CHECK(argmax(x, 1).to_vector<std::int64_t>() == Positions{0, 1, 0});
}

TEST_CASE("inputs that do not fit are refused in words") {
  CHECK(error_of<ShapeError>([] {
          return argmin(Tensor::ones({2, 0}), 1);
        }) == "argmin: expected at least one element along dimension 1, got (2, 0)");
  CHECK(error_of<ShapeError>([] { return argmax(Tensor::ones({2, 3}), 2); }).starts_with("argmax: "));
  CHECK(error_of<DTypeError>([] { return argmin(Tensor::ones({2}, {DType::i64}), 0); }).starts_with("argmin: "));
  CHECK(argmin(Tensor::ones({0, 3}), 1).shape() == Shape{0});
}
