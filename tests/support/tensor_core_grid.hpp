#pragma once
// Random problems near the tile sizes of Algorithm::tensor_core (the same for the same seed), and unusual numbers.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "support/conv.hpp"
#include "support/cuda_conv.hpp"
#include "support/helpers.hpp"
#include "support/reduced.hpp"
#include "support/tolerance.hpp"

namespace polyphase::testing {

inline constexpr int kSharedOfHopper = 227 * 1024, kSmsOfHopper = 132;  // an H200

class Picker {
 public:
  explicit Picker(unsigned seed) : random_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<unsigned>(high - low + 1));
  }

 private:
  std::mt19937 random_;
};

/// For forward and dgrad: strides, dilations, groups, paddings and batches; with `far_taps` also dilations that the stride
/// divides, and dilations at which the taps of a phase share no window.
inline std::vector<ConvProblem> random_gathers(unsigned seed, const std::vector<std::int64_t>& lengths, bool far_taps) {
  std::vector<ConvProblem> problems;
  Picker pick(seed);
  for (int turn = 0; turn < 60; ++turn) {
    ConvProblem p;
    p.N = pick(1, 4);
    p.G = turn % 5 == 0 ? 2 : 1;
    p.C_in = p.G * pick(8, turn % 3 == 0 ? 140 : 40);
    p.C_out = p.G * pick(8, turn % 4 == 0 ? 90 : 24);
    p.L_in = lengths[static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(lengths.size()) - 1))];
    p.S = pick(1, turn % 6 == 0 ? 17 : 5);
    p.D = turn % 3 == 0 ? pick(1, 5) : 1;
    if (far_taps && turn % 7 == 0) p.D = p.S * pick(1, 3);
    if (far_taps && turn % 19 == 0) p.D = pick(20, 200);
    p.K = turn % 2 == 0 ? p.S * pick(1, 3) : pick(1, 12);
    p.P_l = pick(0, std::min<std::int64_t>(5, ((p.L_in - 1) * p.S + p.D * (p.K - 1)) / 2));
    p.P_r = p.P_l / 2;
    p.OP = pick(0, std::max(p.S, p.D) - 1);
    p = sized(p);
    if (p.L_out > 0) problems.push_back(p);
  }
  return problems;
}

/// For the weight gradient: strides that divide the dilation and others, tiles that are full and others, taps that share a
/// window and others.
inline std::vector<ConvProblem> random_wgrads(unsigned seed, int turns) {
  std::vector<ConvProblem> problems;
  Picker pick(seed);
  const std::int64_t lengths[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 255, 257, 513, 1100};
  for (int turn = 0; turn < turns; ++turn) {
    ConvProblem p;
    p.N = pick(1, 3);
    p.G = turn % 4 == 0 ? 2 : 1;
    p.C_in = p.G * pick(8, turn % 3 == 0 ? 150 : 40);
    p.C_out = p.G * pick(8, turn % 5 == 0 ? 140 : 40);
    p.L_in = lengths[pick(0, 12)];
    p.S = turn % 11 == 0 ? pick(7, 20) : pick(1, 4);
    p.D = turn % 2 == 0 ? pick(1, 5) : p.S * pick(1, 3);
    if (turn % 9 == 0) p.D = pick(40, 200);
    p.K = turn % 7 == 0 ? pick(10, 25) : pick(1, 9);
    const std::int64_t half = std::max<std::int64_t>(0, ((p.L_in - 1) * p.S + p.D * (p.K - 1)) / 2);
    p.P_l = pick(0, std::min(half, p.K * p.D));
    p.P_r = pick(0, std::min(half, p.K * p.D));
    p.OP = pick(0, std::max(p.S, p.D) - 1);
    p = sized(p);
    if (p.L_out > 0) problems.push_back(p);
  }
  return problems;
}

/// Stride and dilation of 2: every second output is a bias. Rows of whole sectors and odd rows, tiles that are full and others.
inline std::vector<ConvProblem> spread_problems() {
  std::vector<ConvProblem> problems;
  int turn = 0;
  for (const std::int64_t length : {1, 61, 63, 124, 125, 256, 371, 640}) {
    ConvProblem p{.N = 2, .C_in = 32, .C_out = 64, .L_in = length, .K = 3, .S = 2, .D = 2};
    p.G = turn % 4 == 3 ? 2 : 1;
    p.C_in = (turn % 3 == 1 ? 13 : 32) * p.G;
    p.C_out = (turn % 3 == 2 ? 70 : 64) * p.G;
    p.P_l = turn % 2;
    p.P_r = turn % 3 == 0 ? 1 : 0;
    p.OP = turn / 2 % 2;
    ++turn;
    problems.push_back(sized(p));
  }
  return thinned(std::move(problems));
}

/// Puts infinities into x and y, and a NaN into x at position `nan`.
inline void make_unusual(ConvArrays<float>& arrays, std::int64_t nan) {
  arrays.x[123] = std::numeric_limits<float>::infinity();
  arrays.x[nan] = std::numeric_limits<float>::quiet_NaN();
  arrays.y[777] = -std::numeric_limits<float>::infinity();
}

/// Checks that the numbers are equal, with NaN at the same places, and that infinities or NaN are among them. On a difference
/// `what` is printed.
template <class E, class What>
void check_unusual(const Array<E>& got, const Array<E>& expected, const What& what) {
  std::int64_t unusual = 0, wrong = 0, first = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const auto number = static_cast<float>(got[i]), right = static_cast<float>(expected[i]);
    unusual += std::isfinite(right) ? 0 : 1;
    const bool is_right = number == right || (std::isnan(number) && std::isnan(right));
    if (!is_right && wrong++ == 0) first = i;
  }
  CHECK(unusual > 0);
  CHECK_MESSAGE(wrong == 0, what, ": the first is ", first, ": ", static_cast<float>(got[first]), ", expected ",
                static_cast<float>(expected[first]));
}

/// Small integers with biases that are infinite or NaN: each must affect its own channel only.
template <class E>
void check_unusual_biases(ConvProblem problem) {
  problem.dtype = dtype_of<E>;
  ConvArrays<E> arrays(problem, kSmallIntegers);
  const float infinity = std::numeric_limits<float>::infinity();
  std::int64_t channel = 5;
  for (const float bias : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN(), -32768.0F})
    arrays.bias_out[channel++] = static_cast<E>(bias);
  bool intact = false;
  const Array<E> got = run_on_gpu(arrays, ConvDirection::forward, by_algorithm(Algorithm::tensor_core), intact);
  check_unusual(got, arrays.run(ConvDirection::forward, Algorithm::reference), problem);
}

/// Checks that the largest error of `got`, each relative to its sum of |x||w|, is at most kErrorOverPlain times that of plain
/// f32 sums. On failure `what` is printed.
template <class What>
void check_as_accurate_as_plain(const Array<float>& got, ConvArrays<float> arrays, ConvDirection direction, const What& what) {
  const std::vector<float> plain = arrays.formula<float>(direction);
  const std::vector<double> exact = arrays.formula<double>(direction);
  for (Array<float>* array : {&arrays.x, &arrays.w, &arrays.y, &arrays.bias_out, &arrays.bias_in})
    for (std::int64_t i = 0; i < array->size(); ++i) (*array)[i] = std::fabs((*array)[i]);
  const std::vector<double> magnitude = arrays.formula<double>(direction);
  double worst = 0, worst_plain = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    worst = worse(worst, relative(static_cast<double>(got[static_cast<std::int64_t>(i)]) - exact[i], magnitude[i]));
    worst_plain = worse(worst_plain, relative(static_cast<double>(plain[i]) - exact[i], magnitude[i]));
  }
  CHECK(worst_plain > 0);
  CHECK_MESSAGE(worst <= kErrorOverPlain * worst_plain, what, ": ", worst, " against ", worst_plain);
}

/// Strides, dilations, groups, paddings and lengths near the tile sizes, with enough channels for the tensor cores.
inline std::vector<ConvProblem> dense_problems() {
  std::vector<ConvProblem> problems;
  Picker pick(5);
  const std::int64_t lengths[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513};
  for (int turn = 0; turn < 60; ++turn) {
    ConvProblem p;
    p.N = pick(1, 2);
    p.G = turn % 4 == 0 ? 2 : 1;
    p.C_in = p.G * pick(8, turn % 5 == 0 ? 140 : 24);
    p.C_out = p.G * pick(8, turn % 7 == 0 ? 130 : 24);
    p.L_in = lengths[pick(0, 13)];
    p.S = pick(1, turn % 11 == 0 ? 12 : 4);
    p.D = turn % 3 == 0 ? pick(1, 5) : 1;
    p.K = turn % 2 == 0 ? p.S * pick(1, 3) : pick(1, 9);
    p.P_l = pick(0, std::min<std::int64_t>(5, ((p.L_in - 1) * p.S + p.D * (p.K - 1)) / 2));
    p.P_r = p.P_l / 2;
    p.OP = pick(0, std::max(p.S, p.D) - 1);
    p = sized(p);
    if (p.L_out > 0) problems.push_back(p);
  }
  return thinned(std::move(problems));
}

/// Stride and dilation 1 and many channels: problems for the source in registers. Some rows are whole sectors, some are odd.
inline std::vector<ConvProblem> row_problems() {
  std::vector<ConvProblem> problems;
  const std::int64_t channels[][2] = {{128, 128}, {70, 128}, {128, 97}, {16, 200}};
  const std::int64_t lengths[] = {1, 62, 64, 129, 192, 511, 640};
  int turn = 0;
  for (const auto& [in, out] : channels) {
    for (const std::int64_t length : lengths) {
      ConvProblem p;
      p.N = 1 + turn % 2;
      p.G = turn % 5 == 4 ? 2 : 1;
      p.C_in = in * p.G;
      p.C_out = out * p.G;
      p.L_in = length;
      p.K = turn % 3 == 2 ? 5 : 3;
      p.P_l = turn % 4 == 1 ? 0 : std::min<std::int64_t>(p.K / 2, length / 2);
      p.P_r = turn % 4 == 2 ? 0 : p.P_l;
      ++turn;
      p = sized(p);
      if (p.L_out > 0) problems.push_back(p);
    }
  }
  problems = thinned(std::move(problems));
  // In every grid: even rows that do not begin at sectors, whose tiles carry, also in runs of more than one block.
  problems.push_back(sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = 640, .K = 3}));
  problems.push_back(sized({.N = 1, .C_in = 40, .C_out = 128, .L_in = 512, .K = 5, .P_l = 1, .P_r = 1}));
  problems.push_back(sized({.N = 3, .C_in = 24, .C_out = 128, .L_in = 1200, .K = 3, .G = 1}));
  return problems;
}

}  // namespace polyphase::testing
