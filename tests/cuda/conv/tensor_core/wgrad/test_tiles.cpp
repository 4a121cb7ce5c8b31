#include "cuda/conv/tensor_core/wgrad/tiles.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/conv/tensor_core/wgrad/tiling.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// The job that stores each weight, computed from the rows, columns and shifts of a tile as the kernels store them.
std::vector<std::int64_t> jobs_that_store(const ConvProblem& p, const tensor_core::WgradTiling& tiling) {
  const std::int64_t in = p.C_in / p.G, out = p.C_out / p.G;
  std::vector<std::int64_t> jobs(static_cast<std::size_t>(p.C_in * out * p.K), -1);
  for (std::int64_t job = 0; job < tiling.jobs; ++job) {
    const std::int64_t first_shift = job % tiling.shift_tiles * tiling.shape.shifts, tile = job / tiling.shift_tiles;
    const std::int64_t column = tile % tiling.column_tiles * tiling.columns.tile;
    const std::int64_t row = tile / tiling.column_tiles % tiling.row_tiles * tiling.rows.tile;
    const std::int64_t group = tile / tiling.column_tiles / tiling.row_tiles;
    for (std::int64_t r = row; r < std::min<std::int64_t>(row + tiling.rows.tile, tiling.rows.blocks); ++r) {
      for (std::int64_t c = column; c < std::min<std::int64_t>(column + tiling.columns.tile, tiling.columns.blocks); ++c) {
        const std::int64_t plane = tiling.swapped ? r % tiling.rows.planes : c % tiling.columns.planes;
        for (std::int64_t i = 0; i < 64; ++i) {
          const std::int64_t row_channel = r / tiling.rows.planes * 8 + i / 8;
          const std::int64_t column_channel = c / tiling.columns.planes * 8 + i % 8;
          if (row_channel >= tiling.rows.channels || column_channel >= tiling.columns.channels) continue;
          const std::int64_t ci = group * in + (tiling.swapped ? column_channel : row_channel);
          const std::int64_t co = tiling.swapped ? row_channel : column_channel;
          for (std::int64_t shift = first_shift; shift < first_shift + tiling.shape.shifts; ++shift) {
            const std::int64_t k = plane + tiling.q * shift;
            if (k < p.K) jobs[static_cast<std::size_t>((ci * out + co) * p.K + k)] = job;
          }
        }
      }
    }
  }
  return jobs;
}

/// How many weights are listed for another job than the one that stores them, or are not exactly once in its box.
std::int64_t wrong_weights(const ConvProblem& p, const tensor_core::WgradTiling& tiling) {
  const tensor_core::WgradTiles tiles = tensor_core::make_wgrad_tiles(p, tiling);
  const std::vector<std::int64_t> jobs = jobs_that_store(p, tiling);
  const auto weights = static_cast<std::int64_t>(jobs.size());
  std::vector<int> found(jobs.size());
  for (std::int64_t job = 0; job < tiles.jobs; ++job) {
    const tensor_core::WgradBox box = tensor_core::box_of(tiles, job);
    for (std::int64_t place = 0; place < tensor_core::box_size(tiles, weights); ++place) {
      const std::int64_t i = box.at(place, weights);
      if (i >= weights) return weights;
      if (i >= 0 && jobs[static_cast<std::size_t>(i)] == job) ++found[static_cast<std::size_t>(i)];
    }
  }
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < weights; ++i) {
    const auto at = static_cast<std::size_t>(i);
    wrong += tensor_core::job_of(tiles, i) == jobs[at] && found[at] == 1 ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("every weight is of the job that stores it, and once in that job's box") {
  std::vector<ConvProblem> problems = random_wgrads(17, 24);
  for (const std::int64_t more : {0, 1}) {
    problems.push_back(sized({.N = 2, .C_in = 136 + more, .C_out = 72, .L_in = 200, .K = 3, .P_l = 1, .P_r = 1}));
    problems.push_back(sized({.N = 1, .C_in = 140, .C_out = 86 + more, .L_in = 60, .K = 20, .S = 17, .P_l = 3, .D = 35}));
    problems.push_back(sized({.N = 1, .C_in = 160, .C_out = 96 + 2 * more, .L_in = 432, .K = 16, .S = 8, .P_l = 4, .P_r = 4}));
    problems.push_back(sized({.N = 1, .C_in = 128, .C_out = 96, .L_in = 90, .K = 7 + more, .S = 2, .P_l = 3, .G = 4}));
  }
  int several = 0;
  for (const ConvProblem& p : problems) {
    for (const int parts : {1, 2}) {
      for (const auto& tiling :
           tensor_core::wgrad_candidates(p, parts, 4, kSmsOfHopper, kSharedOfHopper, std::size_t{1} << 28)) {
        CHECK_MESSAGE(wrong_weights(p, tiling) == 0, p, ": ", tiling.shape.columns, " x ", tiling.shape.shifts,
                      tiling.swapped ? ", rows of y" : ", rows of x");
        several += tiling.jobs > 1 ? 1 : 0;
      }
    }
  }
  CHECK(several > 100);
}

TEST_CASE("of kernels that tell no jobs all weights are one job's") {
  const tensor_core::WgradTiles tiles{};
  CHECK(tensor_core::job_of(tiles, 41) == 0);
  CHECK(tensor_core::box_size(tiles, 42) == 42);
  CHECK(tensor_core::box_of(tiles, 0).at(41, 42) == 41);
  CHECK(tensor_core::box_of(tiles, 0).at(42, 42) == -1);
}
