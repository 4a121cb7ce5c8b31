#include "cpu/conv/tiling.hpp"

#include <algorithm>

#include "cpu/conv/conv_kernels.hpp"

namespace polyphase::cpu {

std::vector<Panel> make_panels(std::int64_t rows, const int* widest) {
  int full = kPanelKinds - 1;
  while (widest[full] == 0 || (full > 0 && (1 << (full - 1)) >= rows)) --full;
  std::vector<Panel> panels;
  for (std::int64_t first = 0; first < rows;) {
    int kind = full;
    while (kind > 0 && (1 << (kind - 1)) >= rows - first) --kind;
    const std::int64_t height = std::int64_t{1} << kind;
    panels.push_back({first, std::min(height, rows - first), height, kind});
    first += height;
  }
  return panels;
}

std::vector<Tile> make_tiles(std::int64_t first, std::int64_t count, int widest, int lanes) {
  const std::int64_t vectors = ceil_div(count, lanes);
  const std::int64_t tiles = ceil_div(vectors, widest);
  std::vector<Tile> result;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t width = vectors / tiles + (t < vectors % tiles ? 1 : 0);
    result.push_back({first, static_cast<int>(width)});
    first += width * lanes;
  }
  return result;
}

std::int64_t worthwhile_grain(double operations_per_item) {
  constexpr double kOperationsPerThread = 50'000;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(kOperationsPerThread / std::max(operations_per_item, 1.0)));
}

}  // namespace polyphase::cpu
