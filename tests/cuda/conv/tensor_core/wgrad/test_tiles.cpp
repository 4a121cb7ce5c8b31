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

/// The job that stores each weight, by what the kernels store: rows, columns and shifts of a tile.
std::vector<std::int64_t> jobs_that_store(const ConvProblem& p, const tensor_core::WgradSteps& steps) {
  const std::int64_t in = p.C_in / p.G, out = p.C_out / p.G;
  std::vector<std::int64_t> jobs(static_cast<std::size_t>(p.C_in * out * p.K), -1);
  for (std::int64_t job = 0; job < steps.jobs; ++job) {
    const std::int64_t first_shift = job % steps.shift_tiles * steps.shape.shifts, tile = job / steps.shift_tiles;
    const std::int64_t column = tile % steps.column_tiles * steps.columns.tile;
    const std::int64_t row = tile / steps.column_tiles % steps.row_tiles * steps.rows.tile;
    const std::int64_t group = tile / steps.column_tiles / steps.row_tiles;
    for (std::int64_t r = row; r < std::min<std::int64_t>(row + steps.rows.tile, steps.rows.blocks); ++r) {
      for (std::int64_t c = column; c < std::min<std::int64_t>(column + steps.columns.tile, steps.columns.blocks); ++c) {
        const std::int64_t plane = steps.swapped ? r % steps.rows.planes : c % steps.columns.planes;
        for (std::int64_t i = 0; i < 64; ++i) {
          const std::int64_t row_channel = r / steps.rows.planes * 8 + i / 8;
          const std::int64_t column_channel = c / steps.columns.planes * 8 + i % 8;
          if (row_channel >= steps.rows.channels || column_channel >= steps.columns.channels) continue;
          const std::int64_t ci = group * in + (steps.swapped ? column_channel : row_channel);
          const std::int64_t co = steps.swapped ? row_channel : column_channel;
          for (std::int64_t shift = first_shift; shift < first_shift + steps.shape.shifts; ++shift) {
            const std::int64_t k = plane + steps.q * shift;
            if (k < p.K) jobs[static_cast<std::size_t>((ci * out + co) * p.K + k)] = job;
          }
        }
      }
    }
  }
  return jobs;
}

/// How many weights have another job than the one that stores them, or lie not once in its box.
std::int64_t wrong_weights(const ConvProblem& p, const tensor_core::WgradSteps& steps) {
  const tensor_core::WgradTiles tiles = tensor_core::make_wgrad_tiles(p, steps);
  const std::vector<std::int64_t> jobs = jobs_that_store(p, steps);
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
      for (const auto& steps :
           tensor_core::wgrad_candidates(p, parts, 4, kSmsOfHopper, kSharedOfHopper, std::size_t{1} << 28)) {
        CHECK_MESSAGE(wrong_weights(p, steps) == 0, p, ": ", steps.shape.columns, " x ", steps.shape.shifts,
                      steps.swapped ? ", rows of y" : ", rows of x");
        several += steps.jobs > 1 ? 1 : 0;
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
