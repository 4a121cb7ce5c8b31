#pragma once
// The grid on which every GPU algorithm is tested: bit for bit against the reference on small integers.

#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

#include "support/cuda_conv.hpp"
#include "support/reduced.hpp"

namespace polyphase::testing {

/// Every direction that `can(problem, direction)` allows, compared with the CPU's reference. Returns the sum of the norms.
template <class E, class Call>
double check_gpu_bits(const ConvProblem& problem, const Call& call, std::int64_t misalignment = 0) {
  const ConvArrays<E> arrays(problem, kSmallIntegers);
  double norm = 0;
  for (const ConvDirection direction : kDirections) {
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    bool intact = false;
    const Array<E> got = run_on_gpu(arrays, direction, call, intact, true, misalignment);
    CHECK_MESSAGE(same_bits(got, expected), arrays.p, " ", direction, " misaligned by ", misalignment);
    CHECK_MESSAGE(intact, arrays.p, " ", direction, ": wrote outside its output");
    norm += expected.norm();
  }
  return norm;
}

/// Strides, kernels, dilations, paddings on both sides; lengths near 1, 32 and the tile sizes; `depthwise`: one channel a
/// group. A reduced run takes fewer.
inline std::vector<ConvProblem> grid_problems(bool depthwise) {
  std::vector<ConvProblem> problems;
  const auto add = [&](ConvProblem p) {
    if (depthwise) p.C_out = p.C_in * (1 + p.C_out % 2), p.G = p.C_in;
    p = sized(p);
    if (p.L_out > 0) problems.push_back(p);
  };
  for (const std::int64_t S : {1, 2, 3, 4, 8, 17})
    for (const std::int64_t K : {1, 2, 5, 12})
      for (const std::int64_t D : {1, 2, 3, 24})
        for (const std::int64_t P : {0, 5})
          add({.N = 2,
               .C_in = 3,
               .C_out = 2,
               .L_in = 37,
               .K = K,
               .S = S,
               .P_l = P,
               .P_r = P / 2,
               .OP = std::max(S, D) - 1,
               .D = D});
  for (const std::int64_t L_in : {1, 2, 31, 32, 33, 127, 128, 129, 255, 257, 511, 513, 895, 896, 897, 1793})
    for (const std::int64_t S : {1, 2, 4})
      add({.N = 2, .C_in = 5, .C_out = 9, .L_in = L_in, .K = 4, .S = S, .P_l = 1, .P_r = 2});
  for (const std::int64_t C_in : {1, 7, 33})
    for (const std::int64_t C_out : {1, 4, 17, 65, 130})
      for (const std::int64_t G : {1, 3})
        add({.N = 1, .C_in = C_in * G, .C_out = C_out * G, .L_in = 45, .K = 5, .S = 2, .P_l = 2, .P_r = 1, .OP = 1, .G = G});
  return thinned(std::move(problems));
}

}  // namespace polyphase::testing
