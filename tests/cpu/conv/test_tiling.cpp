#include "cpu/conv/tiling.hpp"

#include <doctest/doctest.h>

#include "cpu/conv/conv_kernels.hpp"
#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::cpu;

TEST_CASE("panels cover all rows once, full ones first") {
  testing::for_each_isa([] {
    const GemmKernels<float>& kernels = gemm_kernels<float>();
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
      std::int64_t next = 0;
      for (const Panel& panel : make_panels(rows, kernels.widest)) {
        CHECK(panel.first == next);
        CHECK(panel.height == std::int64_t{1} << panel.kind);
        CHECK(panel.rows >= 1);
        CHECK(panel.rows <= panel.height);
        CHECK((panel.rows > panel.height / 2 || panel.height == 1));
        CHECK(kernels.widest[panel.kind] > 0);
        next += panel.rows;
      }
      CHECK(next == rows);
      // later panels must have a kernel as wide as the first panel's
      const auto panels = make_panels(rows, kernels.widest);
      for (const Panel& panel : panels) CHECK(kernels.widest[panel.kind] >= kernels.widest[panels.front().kind]);
    }
  });
}

TEST_CASE("tiles cover all positions, none two vectors narrower than another") {
  for (const int widest : {1, 3, 6, 8})
    for (std::int64_t count = 1; count < 400; count += 7) {
      std::int64_t next = 5;
      int least = 99, most = 0;
      for (const Tile& tile : make_tiles(5, count, widest, 16)) {
        CHECK(tile.first == next);
        next += std::int64_t{tile.vectors} * 16;
        least = std::min(least, tile.vectors);
        most = std::max(most, tile.vectors);
      }
      CHECK(next - 5 >= count);
      CHECK(next - 5 < count + 16);
      CHECK(most <= widest);
      CHECK(most - least <= 1);
    }
  CHECK(make_tiles(0, 0, 3, 16).empty());
}

TEST_CASE("small items are bundled") {
  CHECK(worthwhile_grain(1e9) == 1);
  CHECK(worthwhile_grain(500) == 100);
  CHECK(worthwhile_grain(0) >= 1);
}
