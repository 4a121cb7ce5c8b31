#pragma once
// Problems for the by_tile kernel.

#include <vector>

#include "support/conv.hpp"

namespace polyphase::testing {

/// Each of them is taken by another kernel, or needs another path of the by_tile kernel: 256 positions a unit, several chunks,
/// taps with planes of their own, classes that do not divide 64, phases without taps, groups.
inline std::vector<ConvProblem> by_tile_problems() {
  return {sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = 700, .K = 7, .P_l = 3, .P_r = 3}),
          sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1500, .K = 11, .P_l = 5, .P_r = 5}),
          sized({.N = 3, .C_in = 16, .C_out = 24, .L_in = 26000, .K = 3}),
          sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 1100, .K = 3, .P_l = 5, .P_r = 5, .D = 5}),
          sized({.N = 2, .C_in = 40, .C_out = 24, .L_in = 900, .K = 3, .D = 100}),
          sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = 1024, .K = 3}),
          sized({.N = 2, .C_in = 64, .C_out = 32, .L_in = 700, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
          sized({.N = 2, .C_in = 160, .C_out = 144, .L_in = 301, .K = 5, .S = 3, .P_l = 2, .P_r = 1, .G = 2}),
          sized({.N = 2, .C_in = 16, .C_out = 40, .L_in = 333, .K = 4, .S = 6, .P_l = 1}),
          sized({.N = 2, .C_in = 48, .C_out = 20, .L_in = 260, .K = 3, .S = 4, .P_l = 1, .D = 2}),
          sized({.N = 2, .C_in = 256, .C_out = 136, .L_in = 200, .K = 16, .S = 8, .P_l = 4, .P_r = 4}),
          sized({.N = 2, .C_in = 64, .C_out = 40, .L_in = 300, .K = 25, .S = 4, .P_l = 11, .P_r = 11, .OP = 1})};
}

}  // namespace polyphase::testing
