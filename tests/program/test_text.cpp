#include "program/text.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <cmath>

#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::program;

TEST_CASE("numbers with a fixed count of digits") {
  CHECK(fixed(1.25, 1) == "1.2");
  CHECK(fixed(-0.5, 3) == "-0.500");
  CHECK(fixed(1e6, 0) == "1000000");
  CHECK(fixed(INFINITY, 2) == "inf");
  CHECK(fixed(-INFINITY, 2) == "-inf");
  CHECK(fixed(std::nan(""), 2) == "nan");
  CHECK(fixed(1e300, 2) == "?");
}

TEST_CASE("numbers have a point where people write a comma: gnuplot reads them") {
  if (std::setlocale(LC_NUMERIC, "de_DE.UTF-8") == nullptr) SKIP_TEST("no locale de_DE.UTF-8 here");
  const std::string text = fixed(1.5, 1);
  std::setlocale(LC_NUMERIC, "C");
  CHECK(text == "1.5");
}

TEST_CASE("durations and grouped numbers") {
  CHECK(duration(59.4) == "59 s");
  CHECK(duration(61) == "1:01");
  CHECK(duration(3723) == "1:02:03");
  CHECK(counted(1, "thread") == "1 thread");
  CHECK(counted(0, "clip") == "0 clips");
  CHECK(grouped(-1234567) == "-1,234,567");
}

TEST_CASE("words of a shell are quoted where they have to be") {
  CHECK(shell_quoted("runs/a-1.5") == "runs/a-1.5");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("my runs/$1") == "'my runs/$1'");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
}
