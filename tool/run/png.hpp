#pragma once
// PNG pictures with a palette, without compression. https://www.w3.org/TR/2003/REC-PNG-20031110

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace polyphase::tool {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

/// One of 256 colours for each point, rows from the top.
struct Picture {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::array<Color, 256> palette{};
  std::vector<std::uint8_t> points;  ///< (height, width)
};

/// The bytes of a PNG file. Throws ShapeError unless both sizes are in 1..65535 and match the number of pixels.
[[nodiscard]] std::string to_png(const Picture& picture);
/// Writes the file as a whole or not at all. Throws FormatError.
void write_png(const std::string& path, const Picture& picture);

}  // namespace polyphase::tool
