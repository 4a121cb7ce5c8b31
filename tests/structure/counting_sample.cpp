// Not a test: check_counting.py runs it and checks the counts. Two cases pass, one fails, two are skipped.
#include <doctest/doctest.h>

#include <stdexcept>

#include "support/skip.hpp"

TEST_CASE("passes") { CHECK(true); }

TEST_CASE("passes in both subcases") {
  SUBCASE("one") { CHECK(true); }
  SUBCASE("two") { CHECK(true); }
}

TEST_CASE("skipped") {
  SKIP_TEST("no such device");
  CHECK(false);
}

TEST_CASE("skipped in one subcase") {
  SUBCASE("runs") { CHECK(true); }
  SUBCASE("does not") { SKIP_TEST("half a device"); }
}

TEST_CASE("fails, though it says skipped as well") {
  CHECK(false);
  SKIP_TEST("too late");
}
