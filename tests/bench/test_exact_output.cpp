#include "../../bench/exact_output.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "tensor/dtype.hpp"

using namespace polyphase;
using namespace polyphase::bench;

namespace {

constexpr double kAllowed = 5 * 0x1p-8;  // for bf16 (bench/gpu_case.cpp)

double rounded(double value) { return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value)))); }

/// Sums of `terms` products of normal numbers in bf16. Each column of two products is rounded, and so is their sum.
std::vector<SampledOutput> sums_of(int terms) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<SampledOutput> outputs(20000);
  for (SampledOutput& one : outputs) {
    one = {};
    for (int i = 0; i < terms; i += 2) {
      const double a = rounded(normal(random)) * rounded(normal(random)), b = rounded(normal(random)) * rounded(normal(random));
      one.exact += a + b, one.magnitude += std::abs(a) + std::abs(b), one.result += rounded(a) + rounded(b);
    }
    one.result = rounded(one.result);
  }
  return outputs;
}

}  // namespace

TEST_CASE("sums of few terms and of many are right when they are rounded as their formula says") {
  for (const int terms : {2, 4, 12, 768}) {
    CAPTURE(terms);
    CHECK(largest_error(sums_of(terms), terms) < kAllowed);
  }
}

TEST_CASE("a wrong output among thousands is found, whether it is small, typical or large") {
  for (const int terms : {2, 768})
    for (const double share : {0.0, 0.5, 1.0}) {
      std::vector<SampledOutput> outputs = sums_of(terms);
      std::ranges::sort(outputs, {}, &SampledOutput::magnitude);
      SampledOutput& wrong = outputs[static_cast<std::size_t>(share * 19999)];
      wrong.result = wrong.exact + 0.05 * std::max(wrong.magnitude, std::sqrt(terms));
      CAPTURE(terms);
      CAPTURE(share);
      CHECK(largest_error(outputs, terms) > kAllowed);
    }
}

TEST_CASE("NaN, and outputs that are all zero, are wrong") {
  std::vector<SampledOutput> outputs = sums_of(2);
  outputs[7].result = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isinf(largest_error(outputs, 2)));
  CHECK(std::isinf(largest_error({{0, 0, 0}, {0, 0, 0}}, 2)));
}
