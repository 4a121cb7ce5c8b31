#include "cpu/conv/recompute_non_finite.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu/conv/conv_kernels.hpp"
#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNonFinite[] = {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
constexpr Algorithm kAlgorithms[] = {Algorithm::reference, Algorithm::gemm, Algorithm::depthwise};

/// Kinds of outputs seen so far: a test whose outputs are all of one kind would prove nothing.
struct Seen {
  std::int64_t finite = 0, infinite = 0, nan = 0;
};

template <class E>
E element(double value) {
  return static_cast<E>(static_cast<cpu::Compute<E>>(value));
}

/// How many outputs differ from the formula, which has no products with padding. All NaNs count as equal.
template <class E>
int count_wrong(const std::vector<double>& expected, const Array<E>& got, Seen& seen) {
  int wrong = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double want = as_double(element<E>(expected[static_cast<std::size_t>(i)])), have = as_double(got[i]);
    wrong += std::isnan(want) ? !std::isnan(have) : have != want;
    (std::isnan(want) ? seen.nan : std::isinf(want) ? seen.infinite : seen.finite) += 1;
  }
  return wrong;
}

/// Runs all algorithms on these arrays. Checks only on a difference, since there are many cases.
template <class E>
void check_direction(const ConvArrays<E>& arrays, ConvDirection direction, Seen& seen, const char* operand, std::int64_t at) {
  const std::vector<double> expected = arrays.template formula<double>(direction);
  for (const Algorithm algorithm : kAlgorithms) {
    if (cpu::can_implement(arrays.p, direction, algorithm)) continue;
    if (const int wrong = count_wrong(expected, arrays.run(direction, algorithm), seen); wrong != 0)
      FAIL_CHECK(arrays.p, " ", direction, " ", algorithm, " on ", cpu_isa(), ": ", wrong, " wrong with ", operand,
                 " not finite at ", at);
  }
}

/// Each direction with `value`, which is not finite, at element `at` of `array`, one of its two operands.
template <class E>
void check_at(ConvArrays<E>& arrays, Array<E>& array, std::int64_t at, const char* operand, double value, Seen& seen) {
  const E before = array[at];
  array[at] = element<E>(value);
  if (&array != &arrays.y) check_direction(arrays, ConvDirection::forward, seen, operand, at);
  if (&array != &arrays.x) check_direction(arrays, ConvDirection::dgrad, seen, operand, at);
  if (&array != &arrays.w) check_direction(arrays, ConvDirection::wgrad, seen, operand, at);
  array[at] = before;
}

/// Every tap of the first and last pair of channels; every position of the first row of x and the last of y.
template <class E>
void check_everywhere(const ConvProblem& problem, Seen& seen) {
  ConvArrays<E> arrays(problem, kSmallIntegers);
  arrays.x[problem.L_in / 2] = element<E>(0);  // the product with an infinite weight is NaN
  int turn = 0;
  for (std::int64_t k = 0; k < problem.K; ++k) {
    check_at(arrays, arrays.w, k, "w", kNonFinite[turn++ % 3], seen);
    check_at(arrays, arrays.w, arrays.w.size() - 1 - k, "w", kNonFinite[turn++ % 3], seen);
  }
  for (std::int64_t i = 0; i < problem.L_in; ++i) check_at(arrays, arrays.x, i, "x", kNonFinite[turn++ % 3], seen);
  for (std::int64_t t = 1; t <= problem.L_out; ++t)
    check_at(arrays, arrays.y, arrays.y.size() - t, "y", kNonFinite[turn++ % 3], seen);
}

}  // namespace

TEST_CASE("an infinite weight reaches the outputs of its tap and no other") {
  const ConvProblem p = sized({.L_in = 1, .K = 3});
  const float x[] = {1}, w[] = {std::numeric_limits<float>::infinity(), 1, 1};
  for (const Algorithm algorithm : {Algorithm::reference, Algorithm::gemm}) {
    float y[3];
    cpu::conv_forward(p, x, w, nullptr, y, algorithm);
    CHECK(y[0] == std::numeric_limits<float>::infinity());
    CHECK(y[1] == 1);
    CHECK(y[2] == 1);
  }
}

TEST_CASE("infinities and NaN at every tap and position: the formula's numbers, dense and depthwise") {
  for_each_isa([] {
    Seen seen;
    for (const std::int64_t S : {1, 2, 3})
      for (const std::int64_t K : {1, 4})
        for (const std::int64_t D : {1, 3})
          for (const std::int64_t P_l : {0, 3})
            for (const std::int64_t P_r : {0, 2})
              for (const std::int64_t G : {1, 2, 4}) {
                const std::int64_t OP = (S + K) % 2 == 0 ? std::max(S, D) - 1 : 0;
                const ConvProblem p = sized({.N = 1,
                                             .C_in = 4,
                                             .C_out = 4,
                                             .L_in = 5,
                                             .K = K,
                                             .S = S,
                                             .P_l = P_l,
                                             .P_r = P_r,
                                             .OP = OP,
                                             .D = D,
                                             .G = G});
                if (p.L_out > 0) check_everywhere<float>(p, seen);
              }
    CHECK(seen.finite > 0);
    CHECK(seen.infinite > 0);
    CHECK(seen.nan > 0);
  });
}

TEST_CASE("batches, other types, rows of several tiles and blocks") {
  Seen seen;
  for (const std::int64_t G : {1, 3}) {
    const ConvProblem p =
        sized({.N = 2, .C_in = 3, .C_out = 6, .L_in = 5, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .OP = 1, .G = G});
    check_everywhere<double>(p, seen);
    check_everywhere<Half>(p, seen);
    check_everywhere<BFloat16>(p, seen);
  }
  const ConvProblem problems[] = {
      sized({.N = 1, .C_in = 3, .C_out = 4, .L_in = 1501, .K = 5, .S = 1, .P_l = 2, .P_r = 2}),
      sized({.N = 1, .C_in = 2, .C_out = 2, .L_in = 5001, .K = 9, .S = 2, .P_l = 4, .P_r = 3, .D = 3, .G = 2}),
      sized({.N = 40, .C_in = 3, .C_out = 33, .L_in = 20, .K = 4, .S = 2, .P_l = 2, .P_r = 1}),
      // more weights than inputs, in chunks of channels; then many output channels
      sized({.N = 1, .C_in = 700, .C_out = 9, .L_in = 30, .K = 16, .S = 8, .P_l = 4, .P_r = 4}),
      sized({.N = 1, .C_in = 5, .C_out = 90, .L_in = 6, .K = 16, .S = 8, .P_l = 4, .P_r = 4})};
  for (const ConvProblem& p : problems) {
    ConvArrays<float> arrays(p, kSmallIntegers);
    check_at(arrays, arrays.w, 0, "w", -kInfinity, seen);
    check_at(arrays, arrays.w, arrays.w.size() - 1, "w", kInfinity, seen);
    check_at(arrays, arrays.x, 0, "x", kInfinity, seen);
    check_at(arrays, arrays.x, arrays.x.size() - 1, "x", kNonFinite[2], seen);
    check_at(arrays, arrays.y, 0, "y", kNonFinite[2], seen);
    check_at(arrays, arrays.y, arrays.y.size() - 1, "y", kInfinity, seen);
  }
  CHECK(seen.finite > 0);
}

TEST_CASE("several together, and sums that are NaN for another reason stay NaN") {
  Seen seen;
  for (const std::int64_t G : {1, 4}) {
    ConvArrays<float> arrays(sized({.N = 2, .C_in = 4, .C_out = 8, .L_in = 9, .K = 4, .S = 2, .P_l = 1, .P_r = 2, .G = G}),
                             kSmallIntegers);
    const auto place = [](Array<float>& array, std::initializer_list<std::int64_t> places) {
      int turn = 0;
      for (const std::int64_t at : places) array[at] = element<float>(kNonFinite[turn++ % 2]);
    };
    place(arrays.w, {0, 3, arrays.w.size() / 2});
    place(arrays.x, {0, 4, 9, arrays.x.size() - 1});
    place(arrays.y, {0, 7, arrays.y.size() / 2, arrays.y.size() - 1});
    for (const ConvDirection direction : kDirections) check_direction(arrays, direction, seen, "everything", 0);
    for (Array<float>* array : {&arrays.w, &arrays.x, &arrays.y})
      for (std::int64_t i = 0; i < array->size(); ++i) (*array)[i] = std::numeric_limits<float>::quiet_NaN();
    for (const ConvDirection direction : kDirections) check_direction(arrays, direction, seen, "all of everything", 0);
  }
  CHECK(seen.finite > 0);
  CHECK(seen.infinite > 0);
  CHECK(seen.nan > 0);
}

TEST_CASE("outputs that an infinite weight does not reach keep their bits") {
  for_each_isa([] {
    const ConvProblem p = sized({.N = 1, .C_in = 8, .C_out = 9, .L_in = 300, .K = 4, .S = 2, .P_l = 1, .P_r = 1});
    ConvArrays<float> arrays(p, kNormal);
    const Array<float> before = arrays.run(ConvDirection::forward, Algorithm::gemm);
    arrays.w[0] = std::numeric_limits<float>::infinity();  // phase 1 of the first output channel
    const Array<float> after = arrays.run(ConvDirection::forward, Algorithm::gemm);
    int reached = 0, kept = 0;
    for (std::int64_t t = 0; t < p.C_out * p.L_out; ++t) {
      reached += !std::isfinite(after[t]);
      kept += after[t] == before[t];
    }
    CHECK(reached == p.L_in - 1);                    // the tap's product with position 0 does not exist
    CHECK(kept + reached >= p.C_out * p.L_out - 1);  // the last output of its phase meets padding and is summed in f64
  });
}

TEST_CASE("packed numbers are searched outside the interior alone") {
  for (const std::int64_t height : {1, 8}) {
    std::vector<float> packed(static_cast<std::size_t>(100 * height), 1.0F);
    const auto finite = [&](std::int64_t position) {
      packed[static_cast<std::size_t>(position * height)] = std::numeric_limits<float>::quiet_NaN();
      const bool result = cpu::finite_at_ends({.begin = 30, .end = 90}, 20, 100, packed.data(), height);
      packed[static_cast<std::size_t>(position * height)] = 1;
      return result;
    };
    CHECK(!finite(9));  // position 29 of the row
    CHECK(finite(10));
    CHECK(finite(69));
    CHECK(!finite(70));
    CHECK(!finite(99));
  }
}
