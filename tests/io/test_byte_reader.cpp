#include "io/byte_reader.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("numbers, runs and lines, and never past the end") {
  io::ByteReader reader("load", "f", std::string_view("\x01\x02\x03line\nrest", 12), 100);
  CHECK(reader.number<std::uint16_t>() == 0x0201);
  io::ByteReader part = reader.part(1);
  CHECK(part.offset() == 102);
  CHECK(part.number<std::uint8_t>() == 3);
  CHECK(part.is_at_end());
  CHECK(reader.line() == "line");
  CHECK(reader.offset() == 108);
  CHECK(error_of<FormatError>([&] { return reader.number<std::uint64_t>(); }) ==
        "load: f: expected 8 more bytes, there are 4 (at byte 108)");
  CHECK(error_of<FormatError>([&] { return reader.take(UINT64_MAX); }).find("there are 4") != std::string::npos);
  CHECK(error_of<FormatError>([&] { return reader.line(); }).find("expected a line") != std::string::npos);
  CHECK(reader.take(4) == "rest");
}
