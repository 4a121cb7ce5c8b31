#include "tensor/error.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "support/grouping_locale.hpp"
#include "tensor/dtype.hpp"
#include "tensor/shape.hpp"

namespace pp = polyphase;

TEST_CASE("concat streams its parts") { CHECK(pp::concat("got ", 3, " of ", 2.5, 'x') == "got 3 of 2.5x"); }

TEST_CASE("concat writes every kind of part") {
  const std::string text = "text";
  CHECK(pp::concat(text, std::string_view(text).substr(0, 1), 'x', true, false) == "texttx10");
  CHECK(pp::concat(std::int64_t(-9223372036854775807), ' ', 18446744073709551615ULL) ==
        "-9223372036854775807 18446744073709551615");
  CHECK(pp::concat(std::uint8_t('a'), short(-3), 3U) == "a-33");
  CHECK(pp::concat(1.0F / 3, ' ', 1e300, ' ', 0.1 + 0.2) == "0.333333 1e+300 0.3");
  CHECK(pp::concat(pp::DType::bf16, ' ', pp::Shape{2, 3}) == "bf16 (2, 3)");
  CHECK(pp::concat().empty());
}

TEST_CASE("concat writes numbers alike under every locale") {
  const pp::testing::GroupingLocale locale;
  CHECK(pp::concat(2000, ' ', 1.5) == "2000 1.5");
}

TEST_CASE("require throws the type it was given, with the text, and only on failure") {
  pp::require<pp::ShapeError>(true, "never built");
  CHECK_THROWS_WITH_AS(pp::require<pp::ShapeError>(false, "op: expected ", 3, ", got ", 4), "op: expected 3, got 4",
                       pp::ShapeError);
  CHECK_THROWS_AS(pp::require<pp::OutOfMemory>(false, "x"), pp::OutOfMemory);
}

TEST_CASE("every error is an Error and a std::exception") {
  CHECK_THROWS_AS(throw pp::DTypeError("x"), pp::Error);
  CHECK_THROWS_AS(throw pp::DeviceError("x"), pp::Error);
  CHECK_THROWS_AS(throw pp::AutogradError("x"), pp::Error);
  CHECK_THROWS_AS(throw pp::NotImplemented("x"), pp::Error);
  CHECK_THROWS_AS(throw pp::FormatError("x"), std::runtime_error);
}

TEST_CASE("a FormatError knows where") {
  CHECK(pp::FormatError("bad", 17).offset() == 17);
  CHECK(pp::FormatError("bad").offset() == -1);
}
