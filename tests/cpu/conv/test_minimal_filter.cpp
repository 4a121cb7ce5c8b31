#include "cpu/conv/minimal_filter.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "conv/length_invariant.hpp"
#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr ConvDirection kGathers[] = {ConvDirection::forward, ConvDirection::dgrad};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Result {
  Array<float> out;
  std::int64_t by_gemm;  ///< positions
};

Result run(const ConvArrays<float>& arrays, ConvDirection direction, bool with_bias = true) {
  const bool forward = direction == ConvDirection::forward;
  Result result{Array<float>(forward ? arrays.y.size() : arrays.x.size()), 0};
  result.out.poison();
  const float* bias = forward ? arrays.bias_out.data() : arrays.bias_in.data();
  result.by_gemm = cpu::minimal_filter_gather(arrays.p, direction, forward ? arrays.x.data() : arrays.y.data(), arrays.w.data(),
                                              with_bias ? bias : nullptr, result.out.data());
  return result;
}

ConvProblem same_length(std::int64_t channels, std::int64_t L, std::int64_t K, std::int64_t D) {
  return {.N = 1,
          .C_in = channels,
          .C_out = channels,
          .L_in = L,
          .L_out = L,
          .K = K,
          .P_l = (K - 1) * D / 2,
          .P_r = (K - 1) * D / 2,
          .D = D};
}

/// Bit for bit the reference on small integers, most positions by minimal filtering.
void check_bits(const ConvProblem& problem, std::int64_t misalignment = 0) {
  const ConvArrays<float> arrays(problem, kSmallIntegers, misalignment);
  for (const ConvDirection direction : kGathers) {
    if (!cpu::minimal_filter_can_implement(arrays.p, direction)) continue;
    const bool with_bias = problem.K % 2 == 1;
    const Result got = run(arrays, direction, with_bias);
    CHECK_MESSAGE(same_bits(got.out, arrays.run(direction, Algorithm::reference, with_bias)), problem, " ", direction, " on ",
                  cpu_isa());
    CHECK_MESSAGE(2 * got.by_gemm <= problem.N * std::min(problem.L_in, problem.L_out), problem, " ", direction, " on ",
                  cpu_isa());
  }
}

/// The largest |result - float64| / sum |x||w|, over the same of sums term by term.
struct Errors {
  double minimal, plain;
};

double worst(const Array<float>& got, const std::vector<double>& exact, const std::vector<double>& magnitude) {
  double error = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    if (const double difference = std::abs(static_cast<double>(got[static_cast<std::int64_t>(i)]) - exact[i]); difference != 0)
      error = worse(error, difference / magnitude[i]);
  return error;
}

Errors errors_of(ConvArrays<float>& arrays, std::int64_t& by_gemm) {
  std::fill(arrays.bias_in.data(), arrays.bias_in.data() + arrays.bias_in.size(), 0.0F);
  const Result got = run(arrays, ConvDirection::dgrad);
  by_gemm = got.by_gemm;
  const std::vector<double> exact = arrays.formula<double>(ConvDirection::dgrad);
  const std::vector<float> sums = arrays.formula<float>(ConvDirection::dgrad);
  Array<float> plain(arrays.x.size());
  std::copy(sums.begin(), sums.end(), plain.data());
  ConvArrays<float> absolute = arrays;
  for (Array<float>* array : {&absolute.y, &absolute.w})
    for (std::int64_t i = 0; i < array->size(); ++i) (*array)[i] = std::abs((*array)[i]);
  const std::vector<double> magnitude = absolute.formula<double>(ConvDirection::dgrad);
  return {worst(got.out, exact, magnitude), worst(plain, exact, magnitude)};
}

using Change = std::function<void(ConvArrays<float>&)>;

/// Multiplies the source's element (c, t) by scale(c, t).
template <class Scale>
Change scaled(const Scale& scale) {
  return [=](ConvArrays<float>& arrays) {
    for (std::int64_t i = 0; i < arrays.y.size(); ++i)
      arrays.y[i] *= static_cast<float>(scale(i / arrays.p.L_out, i % arrays.p.L_out));
  };
}

/// Multiplies the weights of tap k between channels m and c by scale(m, c, k).
template <class Scale>
Change weighted(const Scale& scale) {
  return [=](ConvArrays<float>& arrays) {
    const std::int64_t K = arrays.p.K, C = arrays.p.C_out;
    for (std::int64_t i = 0; i < arrays.w.size(); ++i) arrays.w[i] *= static_cast<float>(scale(i / K / C, i / K % C, i % K));
  };
}

/// A number in [0, 1) from two.
double noise(std::int64_t a, std::int64_t b) {
  const auto mixed =
      (static_cast<std::uint64_t>(a) * 0x9e3779b97f4a7c15U) ^ (static_cast<std::uint64_t>(b + 1) * 0xbf58476d1ce4e5b9U);
  return static_cast<double>((mixed * 0x94d049bb133111ebU) >> 40) * 0x1p-24;
}

}  // namespace

TEST_CASE("taps, dilations, paddings, lengths around the tile: the reference's bits on small integers") {
  for_each_isa([] {
    for (const std::int64_t K : {3, 5, 8, 11})
      for (const std::int64_t D : {1, 2, 5})
        for (const std::int64_t P : {std::int64_t{0}, K * D})
          check_bits(sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 230, .K = K, .P_l = P, .P_r = P / 2, .D = D}));
    for (const std::int64_t L : {40, 95, 96, 97, 191, 192, 193, 385}) check_bits(same_length(32, L, 7, 1));
    for (const std::int64_t C_in : {32, 35})
      for (const std::int64_t C_out : {31, 41})
        check_bits(sized({.N = 3, .C_in = C_in, .C_out = C_out, .L_in = 300, .K = 11, .P_l = 5, .P_r = 5}), 3);
  });
}

TEST_CASE("random numbers: the error of each output is at most twice the largest of plain sums") {
  for_each_isa([] {
    for (const std::int64_t K : {3, 7, 11})
      for (const std::int64_t D : {1, 3}) {
        ConvArrays<float> arrays(same_length(48, 500, K, D), kNormal);
        std::int64_t by_gemm = 0;
        const Errors errors = errors_of(arrays, by_gemm);
        CHECK_MESSAGE(errors.minimal <= kErrorOverPlain * errors.plain, arrays.p, ": ", errors.minimal, " against ",
                      errors.plain);
        CHECK(errors.plain > 0);
        CHECK(10 * by_gemm <= arrays.p.L_out);
      }
  });
}

TEST_CASE("mixed magnitudes: where the errors could be larger, gemm computes the tile") {
  const auto spike = [](std::int64_t c, std::int64_t t) { return noise(c, t) < 0.01 ? 1e5 : 1.0; };
  const struct {
    std::string name;
    Change change;
    bool all_by_gemm;
  } kinds[] = {
      {"neighbours 1e5 apart", scaled([](std::int64_t, std::int64_t t) { return t % 2 == 0 ? 1e5 : 1.0; }), false},
      {"log-uniform 1e-5", scaled([](std::int64_t c, std::int64_t t) { return std::pow(10.0, -5 * noise(c, t)); }), false},
      {"log-uniform 1e-30", scaled([](std::int64_t c, std::int64_t t) { return std::pow(10.0, -30 * noise(c, t)); }), false},
      {"an outlier", scaled([](std::int64_t c, std::int64_t t) { return c == 5 && t == 300 ? 1e5 : 1.0; }), false},
      {"spikes", scaled(spike), true},
      {"a loud channel", scaled([](std::int64_t c, std::int64_t) { return c == 5 ? 1e5 : 1.0; }), true},
      {"silence", scaled([](std::int64_t, std::int64_t t) { return t / 53 % 2 == 0 ? 0.0 : 1.0; }), false},
      {"near silence", scaled([](std::int64_t, std::int64_t t) { return t / 53 % 2 == 0 ? 1e-5 : 1.0; }), false},
      {"tiny", scaled([](std::int64_t, std::int64_t) { return 1e-30; }), true},
      {"huge", scaled([](std::int64_t, std::int64_t) { return 1e30; }), true},
      {"one tap in three", weighted([](std::int64_t, std::int64_t, std::int64_t k) { return k % 3 == 0 ? 1.0 : 0.0; }), true},
      {"falling taps",
       weighted([](std::int64_t, std::int64_t, std::int64_t k) { return std::pow(0.1, static_cast<double>(k)); }), true},
      {"one weight of an output",
       weighted([](std::int64_t m, std::int64_t c, std::int64_t k) { return m != 7 || (c == 7 && k == 1) ? 1.0 : 0.0; }), true},
      {"few weights",
       weighted([](std::int64_t m, std::int64_t c, std::int64_t k) { return noise(64 * m + c, k) < 0.03 ? 1.0 : 0.0; }), true},
  };
  for (const auto& kind : kinds)
    for (const std::int64_t K : {3, 7}) {
      ConvArrays<float> arrays(same_length(48, 400, K, 1), kNormal);
      kind.change(arrays);
      std::int64_t by_gemm = 0;
      const Errors errors = errors_of(arrays, by_gemm);
      CHECK_MESSAGE(errors.minimal <= kErrorOverPlain * errors.plain, kind.name, ", K = ", K, ": ", errors.minimal, " against ",
                    errors.plain);
      if (kind.all_by_gemm) CHECK_MESSAGE(by_gemm == arrays.p.L_out, kind.name, ", K = ", K);
    }
}

TEST_CASE("where small taps alone meet sound next to silence, gemm computes the tile") {
  ConvArrays<float> arrays(same_length(112, 300, 3, 1), kNormal);
  scaled([](std::int64_t, std::int64_t t) { return t / 37 % 2 == 0 ? 0.0 : 1.0; })(arrays);
  weighted([](std::int64_t, std::int64_t, std::int64_t k) { return k == 1 ? 1.0 : 0.2; })(arrays);
  std::int64_t by_gemm = 0;
  const Errors errors = errors_of(arrays, by_gemm);
  CHECK(errors.minimal <= kErrorOverPlain * errors.plain);
  CHECK(by_gemm > 0);
}

TEST_CASE("an output that reads only zeros is zero, next to any sound") {
  for (const std::int64_t K : {3, 5, 7, 8, 11})
    for (const std::int64_t begin : {300, 301, 302, 303}) {
      ConvArrays<float> arrays(same_length(48, 800, K, 1), kNormal);
      scaled([=](std::int64_t, std::int64_t t) { return t < begin || t >= begin + 100 ? 1.0 : 0.0; })(arrays);
      const Result got = run(arrays, ConvDirection::dgrad, false);
      CHECK(got.by_gemm < arrays.p.L_out);
      for (std::int64_t c = 0; c < arrays.p.C_in; ++c)
        for (std::int64_t t = begin + K; t < begin + 100 - K; ++t) CHECK(got.out[c * arrays.p.L_in + t] == 0);
    }
}

TEST_CASE("infinities and NaN give what plain sums give") {
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::int64_t at : {0, 5, 400, 899}) {
      ConvArrays<float> arrays(same_length(32, 900, 7, 1), kSmallIntegers);
      arrays.y[3 * 900 + at] = value;
      const Result got = run(arrays, ConvDirection::dgrad);
      CHECK(got.by_gemm > 0);
      CHECK(got.by_gemm < arrays.p.L_out);
      const Array<float> expected = arrays.run(ConvDirection::dgrad, Algorithm::gemm);
      for (std::int64_t i = 0; i < expected.size(); ++i)
        CHECK((got.out[i] == expected[i] || (std::isnan(got.out[i]) && std::isnan(expected[i]))));
    }
    ConvArrays<float> arrays(same_length(32, 900, 7, 1), kSmallIntegers);
    arrays.w[100] = value;
    const Result got = run(arrays, ConvDirection::dgrad);
    CHECK(got.by_gemm == arrays.p.L_out);
    const Array<float> expected = arrays.run(ConvDirection::dgrad, Algorithm::gemm);
    for (std::int64_t i = 0; i < expected.size(); ++i)
      CHECK((got.out[i] == expected[i] || (std::isnan(got.out[i]) && std::isnan(expected[i]))));
  }
}

TEST_CASE("same bits in every run and with every number of threads") {
  const int before = num_threads();
  ConvArrays<float> arrays(same_length(64, 5000, 11, 3), kNormal);
  arrays.p.N = 1;
  arrays.y[64 * 100 + 7] = 1e6F;
  set_num_threads(1);
  const Result first = run(arrays, ConvDirection::dgrad);
  CHECK(first.by_gemm > 0);
  for (const int threads : {1, 2, 3, 5, 16}) {
    set_num_threads(threads);
    CHECK(same_bits(run(arrays, ConvDirection::dgrad).out, first.out));
  }
  set_num_threads(before);
}

TEST_CASE("automatic uses it for large problems in tf32, unless the length must not matter") {
  const ConvArrays<float> arrays(same_length(64, 8000, 7, 1), kNormal);
  CHECK(cpu::minimal_filter_pays(arrays.p, ConvDirection::dgrad));
  CHECK(cpu::minimal_filter_pays(arrays.p, ConvDirection::forward));
  CHECK_FALSE(cpu::minimal_filter_pays(arrays.p, ConvDirection::wgrad));
  CHECK_FALSE(cpu::minimal_filter_pays(same_length(32, 8000, 7, 1), ConvDirection::dgrad));
  CHECK_FALSE(cpu::minimal_filter_pays(same_length(64, 300, 7, 1), ConvDirection::dgrad));
  CHECK_FALSE(cpu::minimal_filter_pays(same_length(64, 8000, 3, 1), ConvDirection::dgrad));
  const Array<float> gemm = arrays.run(ConvDirection::dgrad, Algorithm::gemm);
  const Array<float> minimal = run(arrays, ConvDirection::dgrad).out;
  CHECK_FALSE(same_bits(minimal, gemm));
  Array<float> out(gemm.size());
  const auto convolve = [&](Algorithm algorithm, Precision precision) {
    out.poison();
    cpu::conv_dgrad(arrays.p, arrays.y.data(), arrays.w.data(), arrays.bias_in.data(), out.data(), algorithm, precision);
  };
  convolve(Algorithm::automatic, Precision::tf32);
  CHECK(same_bits(out, minimal));
  for (const Precision precision : {Precision::ieee, Precision::fp32}) {
    convolve(Algorithm::automatic, precision);
    CHECK(same_bits(out, gemm));
  }
  convolve(Algorithm::gemm, Precision::tf32);
  CHECK(same_bits(out, gemm));
  const LengthInvariantGuard guard;
  convolve(Algorithm::automatic, Precision::tf32);
  CHECK(same_bits(out, gemm));
}
