#pragma once
// How output channels and positions are split into register tiles. Internal to cpu/.

#include <cstdint>
#include <vector>

namespace polyphase::cpu {

[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Rows [first, first + rows), computed `height` = 2^kind at a time (height - rows of them are padding).
struct Panel {
  std::int64_t first, rows, height;
  int kind;
};

/// Positions [first, first + vectors*lanes); the last ones may be past the end.
struct Tile {
  std::int64_t first;
  int vectors;
};

/// As many full panels as fit, then one of the least height that covers the rest. `widest` is GemmKernels::widest.
[[nodiscard]] std::vector<Panel> make_panels(std::int64_t rows, const int* widest);

/// Tiles of at most `widest` vectors over [first, first + count), of nearly equal size, because narrow ones are less efficient.
[[nodiscard]] std::vector<Tile> make_tiles(std::int64_t first, std::int64_t count, int widest, int lanes);

/// The number of items that a thread needs at least, so that waking it pays.
[[nodiscard]] std::int64_t worthwhile_grain(double operations_per_item);

}  // namespace polyphase::cpu
