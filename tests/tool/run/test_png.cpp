#include "run/png.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using namespace polyphase::tool;

namespace {

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8U | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

TEST_CASE("a picture of 2 x 1 points, byte for byte") {
  Picture picture{.width = 2, .height = 1, .points = {3, 1}};
  picture.palette[1] = {10, 20, 30};
  const std::string png = to_png(picture);
  CHECK(png.substr(0, 8) == std::string("\x89PNG\r\n\x1a\n", 8));
  CHECK(png.substr(8, 25) == std::string("\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x01\x08\x03\0\0\0", 21) + png.substr(29, 4));
  CHECK(png.substr(33, 8) == std::string("\0\0\x03\0PLTE", 8));
  CHECK(png.substr(44, 3) == "\x0a\x14\x1e");
  const std::size_t data = 33 + 12 + 768;
  CHECK(png.substr(data, 8) == std::string("\0\0\0\x0eIDAT", 8));
  // zlib's header, one last stored block of 3 bytes, and Adler's sum: 1 + 3 + 1, and 1 + 4 + 5.
  CHECK(png.substr(data + 8, 14) == std::string("\x78\x01\x01\x03\0\xfc\xff\0\x03\x01\0\x0a\0\x05", 14));
  // The checksum of every PNG's last chunk.
  CHECK(png.substr(png.size() - 12) == std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12));
  CHECK(big_endian(png, data) == 14);
}

TEST_CASE("rows longer than a stored block") {
  const Picture picture{.width = 60000, .height = 3, .points = std::vector<std::uint8_t>(180000, 7)};
  const std::string png = to_png(picture);
  CHECK(png.size() > 180000);
  const TemporaryDirectory directory;
  write_png(directory.file("p.png"), picture);
  CHECK(read_bytes(directory.file("p.png")) == png);
}

TEST_CASE("points that do not fill the picture are refused") {
  const auto error = [](std::int64_t width, std::int64_t height) {
    return error_of<ShapeError>([&] { return to_png({.width = width, .height = height, .points = {1, 2}}); });
  };
  CHECK(error(2, 2).find("2 x 2 with 2 points") != std::string::npos);
  CHECK(error(0, 2).find("0 x 2") != std::string::npos);
  CHECK(error(70000, 2).find("70000") != std::string::npos);
}
