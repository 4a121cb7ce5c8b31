#include "cuda/conv/depthwise.hpp"

#include <doctest/doctest.h>

#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("the grid with one or two outputs a channel, every type and misalignment") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : grid_problems(true)) {
    norm += check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), turn % 5);
    if (turn % 3 == 0) check_gpu_bits<double>(p, by_algorithm(Algorithm::depthwise), turn % 2);
    if (turn % 3 == 1) check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), turn % 9);
    if (turn % 3 == 2) check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), turn % 9);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("long rows, many taps, large strides and dilations") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvProblem& p :
       {sized({.N = 2, .C_in = 4, .C_out = 4, .L_in = 5003, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 4}),
        sized({.N = 1, .C_in = 3, .C_out = 9, .L_in = 2001, .K = 65, .S = 1, .P_l = 32, .P_r = 32, .G = 3}),
        sized({.N = 1, .C_in = 2, .C_out = 2, .L_in = 300, .K = 7, .S = 50, .P_l = 3, .OP = 20, .G = 2}),
        sized({.N = 1, .C_in = 2, .C_out = 4, .L_in = 999, .K = 9, .S = 6, .P_l = 100, .D = 200, .G = 2}),
        sized({.N = 3, .C_in = 2, .C_out = 2, .L_in = 4000, .K = 3, .S = 1, .P_l = 9, .P_r = 9, .D = 9, .G = 2})}) {
    CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), 1) > 0);
    CHECK(check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), 3) > 0);
  }
}

TEST_CASE("what it cannot do, in words") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvProblem dense = sized({.C_in = 4, .C_out = 4, .L_in = 8, .K = 3, .G = 2});
  CHECK(cuda::depthwise::can_implement(dense, ConvDirection::forward, 0) == "it needs groups = C_in, got G=2 and C_in=4");
  const ConvProblem wide = sized({.C_in = 4, .C_out = 4, .L_in = 8, .K = 3, .S = 4000, .G = 4});
  CHECK(cuda::depthwise::can_implement(wide, ConvDirection::forward, 0)->find("bytes of shared memory, this GPU has") !=
        std::string::npos);
}
