#include "run/png.hpp"

#include <algorithm>
#include <string_view>

#include "io/atomic_file.hpp"
#include "tensor/error.hpp"

namespace polyphase::tool {
namespace {

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t n = 0; n < 256; ++n) {
    std::uint32_t value = n;
    for (int bit = 0; bit < 8; ++bit) value = (value & 1U) != 0 ? 0xEDB88320U ^ (value >> 1U) : value >> 1U;
    table[n] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrc = crc_table();

std::uint32_t crc_of(std::string_view bytes) {
  std::uint32_t value = 0xFFFFFFFFU;
  for (const char byte : bytes) value = kCrc[(value ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (value >> 8U);
  return ~value;
}

std::uint32_t adler_of(std::string_view bytes) {
  std::uint32_t low = 1, high = 0;
  for (const char byte : bytes) {
    low = (low + static_cast<unsigned char>(byte)) % 65521U;
    high = (high + low) % 65521U;
  }
  return high << 16U | low;
}

void append_big_endian(std::string& bytes, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> static_cast<unsigned>(shift) & 0xFFU);
}

void append_chunk(std::string& png, const char* type, const std::string& data) {
  append_big_endian(png, static_cast<std::uint32_t>(data.size()));
  const std::string checked = type + data;
  png += checked;
  append_big_endian(png, crc_of(checked));
}

/// A zlib stream of stored blocks (RFC 1950, RFC 1951).
std::string zlib_stored(std::string_view data) {
  constexpr std::size_t kLargestBlock = 65535;
  std::string stream("\x78\x01", 2);
  for (std::size_t begin = 0; begin < data.size(); begin += kLargestBlock) {
    const std::size_t size = std::min(kLargestBlock, data.size() - begin);
    stream += static_cast<char>(begin + size == data.size());
    for (const std::size_t field : {size, ~size}) {
      stream += static_cast<char>(field & 0xFFU);
      stream += static_cast<char>(field >> 8U & 0xFFU);
    }
    stream += data.substr(begin, size);
  }
  append_big_endian(stream, adler_of(data));
  return stream;
}

}  // namespace

std::string to_png(const Picture& picture) {
  const auto fits = [](std::int64_t size) { return size >= 1 && size <= 65535; };
  require<ShapeError>(fits(picture.width) && fits(picture.height) &&
                          static_cast<std::int64_t>(picture.points.size()) == picture.width * picture.height,
                      "png: expected a picture of 1 to 65535 points a side, got ", picture.width, " x ", picture.height,
                      " with ", picture.points.size(), " points");
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(picture.width));
  append_big_endian(header, static_cast<std::uint32_t>(picture.height));
  header.append("\x08\x03\x00\x00\x00", 5);  // 8 bits per pixel, a palette, no interlacing
  std::string palette;
  for (const Color& color : picture.palette)
    for (const std::uint8_t part : {color.red, color.green, color.blue}) palette += static_cast<char>(part);
  std::string rows;
  for (std::int64_t y = 0; y < picture.height; ++y) {
    rows += '\0';  // no filter
    const auto begin = picture.points.begin() + y * picture.width;
    rows.append(begin, begin + picture.width);
  }
  std::string png("\x89PNG\r\n\x1a\n", 8);
  append_chunk(png, "IHDR", header);
  append_chunk(png, "PLTE", palette);
  append_chunk(png, "IDAT", zlib_stored(rows));
  append_chunk(png, "IEND", "");
  return png;
}

void write_png(const std::string& path, const Picture& picture) {
  const std::string bytes = to_png(picture);
  AtomicFile file("write_png", path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace polyphase::tool
