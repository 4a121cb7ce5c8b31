#include "golden/compare.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace polyphase;
using namespace polyphase::golden;

namespace {

const double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

}  // namespace

TEST_CASE("relative error of whole tensors") {
  CHECK(relative_error({3, 4}, {3, 4}) == 0);
  CHECK(relative_error({3, 5}, {3, 4}) == doctest::Approx(0.2));
  CHECK(relative_error({0, 0}, {0, 0}) == 0);
  CHECK(relative_error({1, 0}, {0, 0}) == kInfinity);
  CHECK(relative_error({1e-9}, {0}, 1e-3) == doctest::Approx(1e-6));
  CHECK(relative_error({kNaN}, {1}) == kInfinity);
  CHECK(relative_error({1}, {kNaN}) == kInfinity);
  CHECK(relative_error({1}, {1, 2}) == kInfinity);
}

TEST_CASE("error of the worst element against its magnitude") {
  CHECK(componentwise_error({1, 2}, {1, 3}, {10, 4}) == 0.25);
  CHECK(componentwise_error({0}, {0}, {0}) == 0);
  CHECK(componentwise_error({1}, {0}, {0}) == kInfinity);
  CHECK(componentwise_error({kNaN}, {0}, {1}) == kInfinity);
  CHECK(componentwise_error({1}, {1, 1}, {1, 1}) == kInfinity);
  CHECK(componentwise_error({kInfinity}, {1}, {kInfinity}) == kInfinity);
}

TEST_CASE("the result that uses most of its tolerance is kept, and one that is no number is worst of all") {
  Result worst;
  keep_worse(worst, "a", 1, 10);
  keep_worse(worst, "b", 2, 100);
  CHECK(worst.worst == "a");
  keep_worse(worst, "c", 2, 10);
  CHECK(worst.worst == "c");
  CHECK(worst.passed());
  keep_worse(worst, "d", kNaN, 10);
  CHECK(worst.worst == "d");
  CHECK_FALSE(worst.passed());
  keep_worse(worst, "e", 11, 10);
  CHECK(worst.worst == "d");
}

TEST_CASE("a tolerance that is not finite allows nothing") {
  Result worst;
  keep_worse(worst, "a", 20, 10);
  for (const double tolerance : {kInfinity, kNaN}) {
    keep_worse(worst, "b", kInfinity, tolerance);
    CHECK_FALSE(worst.passed());
    Result alone;
    keep_worse(alone, "b", 0, tolerance);
    CHECK_FALSE(alone.passed());
    keep_worse(alone, "c", 1, 10);
    CHECK(alone.worst == "b");
    CHECK_FALSE(alone.passed());
  }
}

TEST_CASE("no error uses nothing of its tolerance, 0 included") {
  Result worst;
  keep_worse(worst, "a", 1, 10);
  keep_worse(worst, "b", 0, 0);
  CHECK(worst.worst == "a");
  CHECK(worst.passed());
}
