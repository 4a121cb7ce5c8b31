#include "cpu/conv/depthwise.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "cpu/threads.hpp"
#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

template <class E>
double check_bits(const ConvProblem& problem, std::int64_t misalignment = 0) {
  const ConvArrays<E> arrays(problem, kSmallIntegers, misalignment);
  double norm = 0;
  for (const ConvDirection direction : kDirections) {
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    CHECK_MESSAGE(same_bits(arrays.run(direction, Algorithm::depthwise), expected), arrays.p, " ", direction, " on ",
                  cpu_isa());
    norm += expected.norm();
  }
  return norm;
}

}  // namespace

TEST_CASE("the reference's bits on small integers") {
  for_each_isa([] {
    double norm = 0;
    for (const std::int64_t multiplier : {1, 2, 3, 9})
      for (const std::int64_t S : {1, 2, 3, 4, 8, 11})
        for (const std::int64_t K : {1, 3, 9, 12})
          for (const std::int64_t D : {1, 3})
            for (const std::int64_t L_in : {1, 40, 131}) {
              const ConvProblem p = sized({.N = 2,
                                           .C_in = 3,
                                           .C_out = 3 * multiplier,
                                           .L_in = L_in,
                                           .K = K,
                                           .S = S,
                                           .P_l = 1,
                                           .OP = S - 1,
                                           .D = D,
                                           .G = 3});
              if (p.L_out > 0) norm += check_bits<float>(p);
            }
    CHECK(norm > 0);
  });
}

TEST_CASE("long rows, other types, odd pointers") {
  for_each_isa([] {
    const ConvProblem p =
        sized({.N = 2, .C_in = 2, .C_out = 4, .L_in = 5003, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .OP = 1, .G = 2});
    CHECK(check_bits<float>(p, 1) > 0);
    CHECK(check_bits<double>(p, 1) > 0);
    // f16 has all integers up to 2048, bf16 up to 256
    const ConvProblem few = sized({.N = 1, .C_in = 3, .C_out = 3, .L_in = 60, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .G = 3});
    CHECK(check_bits<Half>(few, 1) > 0);
    CHECK(check_bits<BFloat16>(sized({.N = 1, .C_in = 3, .C_out = 3, .L_in = 20, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .G = 3}),
                               1) > 0);
  });
}

TEST_CASE("an infinity of y spoils only the weights that meet it") {
  for_each_isa([] {
    ConvArrays<float> arrays(sized({.N = 2, .C_in = 2, .C_out = 4, .L_in = 21, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .G = 2}),
                             kSmallIntegers);
    arrays.y[arrays.p.L_out - 1] = std::numeric_limits<float>::infinity();
    CHECK(same_bits(arrays.run(ConvDirection::wgrad, Algorithm::depthwise),
                    arrays.run(ConvDirection::wgrad, Algorithm::reference)));
  });
}

TEST_CASE("nothing to do") {
  check_bits<float>(sized({.N = 0, .C_in = 3, .C_out = 3, .L_in = 5, .K = 3, .S = 2, .G = 3}));
  check_bits<float>({.N = 2, .C_in = 3, .C_out = 3, .L_in = 0, .L_out = 6, .K = 3, .S = 2, .G = 3});
}

namespace {

template <class E>
void check_threads() {
  const ConvArrays<E> arrays(sized({.N = 2, .C_in = 3, .C_out = 6, .L_in = 9000, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 3}),
                             kNormal);
  const int before = num_threads();
  for (const ConvDirection direction : kDirections) {
    set_num_threads(1);
    const Array<E> first = arrays.run(direction, Algorithm::depthwise);
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      CHECK(same_bits(arrays.run(direction, Algorithm::depthwise), first));
    }
  }
  set_num_threads(before);
}

}  // namespace

// In f64 a change of the order of the sums is visible; in f32 rounding may hide it.
TEST_CASE("same bits with every number of threads") {
  check_threads<float>();
  check_threads<double>();
}

TEST_CASE("what it cannot do, in words") {
  CHECK(cpu::depthwise_can_implement({.C_in = 4, .C_out = 4, .G = 2}, ConvDirection::forward) ==
        "needs G == C_in > 1, got G=2 C_in=4");
  CHECK(cpu::depthwise_can_implement({.C_in = 1, .C_out = 4}, ConvDirection::wgrad) == "needs G == C_in > 1, got G=1 C_in=1");
}
