#pragma once
// A smaller suite for tools that make every kernel a hundred times slower (compute-sanitizer).

#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace polyphase::testing {

/// Whether POLYPHASE_TEST_REDUCED=1 asks for a part of every grid.
inline bool is_reduced() {
  const char* value = std::getenv("POLYPHASE_TEST_REDUCED");
  return value != nullptr && std::string_view(value) == "1";
}

/// The whole grid, or in a reduced run every `step`th element from the first on. 11 shares no factor with the periods in which
/// tests vary dtypes and misalignments, nor with the lengths of the grid's own loops.
template <class T>
std::vector<T> thinned(std::vector<T> grid, std::size_t step = 11) {
  if (!is_reduced()) return grid;
  std::vector<T> some;
  for (std::size_t i = 0; i < grid.size(); i += step) some.push_back(std::move(grid[i]));
  return some;
}

}  // namespace polyphase::testing
