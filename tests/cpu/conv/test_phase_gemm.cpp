#include "cpu/conv/phase_gemm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

/// Every direction against the reference, bit for bit, on small integers; returns the sum of the norms.
template <class E>
double check_bits(const ConvProblem& problem, std::int64_t misalignment = 0) {
  const ConvArrays<E> arrays(problem, kSmallIntegers, misalignment);
  double norm = 0;
  for (const ConvDirection direction : kDirections) {
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    const Array<E> got = arrays.run(direction, Algorithm::gemm);
    CHECK_MESSAGE(same_bits(got, expected), arrays.p, " ", direction, " on ", cpu_isa());
    norm += expected.norm();
  }
  return norm;
}

bool valid(const ConvProblem& p) { return p.L_out > 0; }

}  // namespace

TEST_CASE("strides, kernels, dilations, paddings: the reference's bits on small integers") {
  for_each_isa([] {
    double norm = 0;
    for (const std::int64_t S : {1, 2, 3, 4, 5, 8, 17})
      for (const std::int64_t K : {1, 2, 3, 8, 13})
        for (const std::int64_t D : {1, 2, 3, 60})
          for (const std::int64_t P_l : {0, 1, 5})
            for (const std::int64_t P_r : {0, 4})
              for (const std::int64_t L_in : {1, 37}) {
                const std::int64_t OP = (S + K) % 2 == 0 ? std::max(S, D) - 1 : 0;
                const ConvProblem p = sized(
                    {.N = 1, .C_in = 3, .C_out = 2, .L_in = L_in, .K = K, .S = S, .P_l = P_l, .P_r = P_r, .OP = OP, .D = D});
                if (valid(p)) norm += check_bits<float>(p);
              }
    CHECK(norm > 0);
  });
}

TEST_CASE("lengths around the tile, batches, groups and channels around the panel") {
  for_each_isa([] {
    double norm = 0;
    for (const std::int64_t L_in : {1, 2, 15, 16, 17, 47, 48, 49, 97, 129, 511, 512, 513})
      for (const std::int64_t S : {1, 2, 4})
        norm += check_bits<float>(sized({.N = 2, .C_in = 5, .C_out = 9, .L_in = L_in, .K = 4, .S = S, .P_l = 1, .P_r = 2}));
    for (const std::int64_t C_in : {1, 2, 3, 4, 7, 8, 9, 17})
      for (const std::int64_t C_out : {1, 2, 3, 5, 7, 8, 9, 12, 33})
        for (const std::int64_t G : {1, 3})
          norm += check_bits<float>(sized(
              {.N = 3, .C_in = C_in * G, .C_out = C_out * G, .L_in = 21, .K = 5, .S = 2, .P_l = 2, .P_r = 1, .OP = 1, .G = G}));
    CHECK(norm > 0);
  });
}

TEST_CASE("weights larger than the input, many samples, long sums") {
  CHECK(check_bits<float>(sized({.N = 2, .C_in = 96, .C_out = 80, .L_in = 5, .K = 16, .S = 8, .P_l = 4, .P_r = 4})) > 0);
  // chunks of channels: first in forward, then in dgrad
  CHECK(check_bits<float>(sized({.N = 1, .C_in = 700, .C_out = 37, .L_in = 100, .K = 16, .S = 8, .P_l = 4, .P_r = 4})) > 0);
  CHECK(check_bits<float>(sized({.N = 2, .C_in = 41, .C_out = 700, .L_in = 20, .K = 16, .S = 8, .P_l = 4, .P_r = 4})) > 0);
  CHECK(check_bits<float>(sized({.N = 70, .C_in = 4, .C_out = 6, .L_in = 33, .K = 3, .S = 1, .P_l = 1, .P_r = 1})) > 0);
  CHECK(check_bits<float>(sized({.N = 1, .C_in = 2, .C_out = 1, .L_in = 20011, .K = 7, .S = 1, .P_l = 3, .P_r = 3})) > 0);
  CHECK(check_bits<float>(sized({.N = 1, .C_in = 2, .C_out = 40, .L_in = 5003, .K = 2, .S = 2, .P_l = 1})) > 0);
  CHECK(check_bits<float>(sized({.N = 1, .C_in = 3, .C_out = 18, .L_in = 9001, .K = 4, .S = 3, .P_l = 0, .P_r = 1, .D = 5})) >
        0);
}

TEST_CASE("other types, and pointers that are not aligned") {
  for_each_isa([] {
    const ConvProblem problems[] = {
        sized({.N = 2, .C_in = 9, .C_out = 11, .L_in = 75, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
        sized({.N = 2, .C_in = 6, .C_out = 4, .L_in = 40, .K = 7, .S = 3, .P_l = 2, .P_r = 0, .OP = 2, .D = 2, .G = 2}),
        sized({.N = 1, .C_in = 1, .C_out = 8, .L_in = 130, .K = 3, .S = 1, .P_l = 1, .P_r = 1})};
    for (const ConvProblem& p : problems) {
      CHECK(check_bits<double>(p, 1) > 0);
      CHECK(check_bits<Half>(p, 1) > 0);
      CHECK(check_bits<float>(p, 3) > 0);
    }
    // bf16 has all integers up to 256 only, so the sums have few products.
    CHECK(check_bits<BFloat16>(sized({.N = 1, .C_in = 5, .C_out = 3, .L_in = 9, .K = 3, .S = 2, .P_l = 1}), 1) > 0);
  });
}

TEST_CASE("no samples, no positions, no bias") {
  ConvProblem p = sized({.N = 0, .C_in = 3, .C_out = 4, .L_in = 5, .K = 3, .S = 2});
  check_bits<float>(p);
  p = {.N = 2, .C_in = 3, .C_out = 4, .L_in = 0, .L_out = 6, .K = 3, .S = 2};
  check_bits<float>(p);
  p = {.N = 2, .C_in = 3, .C_out = 4, .L_in = 2, .L_out = 0, .K = 3, .S = 2, .P_l = 5};
  check_bits<float>(p);
  const ConvArrays<float> arrays(sized({.N = 1, .C_in = 3, .C_out = 4, .L_in = 20, .K = 3, .S = 2}), kSmallIntegers);
  for (const ConvDirection direction : kDirections)
    CHECK(same_bits(arrays.run(direction, Algorithm::gemm, false), arrays.run(direction, Algorithm::reference, false)));
}

TEST_CASE("random numbers: the error against float64 is at most twice that of plain float32 arithmetic") {
  for_each_isa([] {
    const ConvProblem problems[] = {sized({.N = 1, .C_in = 40, .C_out = 24, .L_in = 300, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
                                    sized({.N = 3, .C_in = 16, .C_out = 8, .L_in = 1500, .K = 5, .S = 1, .P_l = 2, .P_r = 2})};
    for (const ConvProblem& problem : problems) {
      const ConvArrays<float> arrays(problem, kNormal);
      for (const ConvDirection direction : kDirections) {
        const std::vector<double> exact = arrays.formula<double>(direction);
        const std::vector<float> plain = arrays.formula<float>(direction);
        const Array<float> got = arrays.run(direction, Algorithm::gemm);
        double error = 0, plain_error = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
          error = worse(error, std::abs(static_cast<double>(got[static_cast<std::int64_t>(i)]) - exact[i]));
          plain_error = worse(plain_error, std::abs(static_cast<double>(plain[i]) - exact[i]));
        }
        CHECK_MESSAGE(error <= kErrorOverPlain * plain_error, problem, " ", direction, ": ", error, " against ", plain_error);
        CHECK(plain_error > 0);
      }
    }
  });
}

TEST_CASE("the zeros after a row of x meet no infinity of y in the weights' gradient") {
  for (const ConvProblem& problem :
       {sized({.N = 1, .C_in = 3, .C_out = 4, .L_in = 1501, .K = 5, .S = 1, .P_l = 2, .P_r = 2}),
        sized({.N = 1, .C_in = 40, .C_out = 50, .L_in = 1027, .K = 7, .S = 2, .P_l = 1, .P_r = 1})})
    for (const std::int64_t from_end : {1, 2, 3, 4}) {
      ConvArrays<float> arrays(problem, kSmallIntegers);
      arrays.y[problem.L_out - from_end] = std::numeric_limits<float>::infinity();
      const std::vector<float> expected = arrays.formula<float>(ConvDirection::wgrad);
      const Array<float> got = arrays.run(ConvDirection::wgrad, Algorithm::gemm);
      CHECK(std::equal(expected.begin(), expected.end(), got.data()));
    }
}

namespace {

template <class E>
void check_threads() {
  const ConvProblem problems[] = {sized({.N = 2, .C_in = 24, .C_out = 40, .L_in = 1100, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
                                  sized({.N = 1, .C_in = 700, .C_out = 96, .L_in = 70, .K = 16, .S = 8, .P_l = 4, .P_r = 4}),
                                  sized({.N = 1, .C_in = 4, .C_out = 4, .L_in = 20000, .K = 3, .S = 1, .P_l = 1, .P_r = 1})};
  const int before = num_threads();
  for (const ConvProblem& problem : problems) {
    const ConvArrays<E> arrays(problem, kNormal);
    for (const ConvDirection direction : kDirections) {
      set_num_threads(1);
      const Array<E> first = arrays.run(direction, Algorithm::gemm);
      for (const int threads : {1, 2, 3, 5, 16}) {
        set_num_threads(threads);
        CHECK_MESSAGE(same_bits(arrays.run(direction, Algorithm::gemm), first), problem, " ", direction, " with ", threads,
                      " threads");
      }
    }
  }
  set_num_threads(before);
}

}  // namespace

// In f64 a change of the order of the sums is visible; in f32 rounding may hide it.
TEST_CASE("same bits in every run and with every number of threads") {
  check_threads<float>();
  check_threads<double>();
}

TEST_CASE("what it cannot do, in words") {
  const ConvProblem p = {.C_in = 1 << 22, .C_out = 1, .K = 4};
  CHECK(cpu::phase_gemm_can_implement(p, ConvDirection::forward) == "C/G * K = 4194304 * 4 is above 8388608");
  CHECK(!cpu::phase_gemm_can_implement({.C_in = 1 << 20, .C_out = 1, .K = 4}, ConvDirection::forward));
}
