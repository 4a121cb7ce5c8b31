#include "cpu/conv/conv_kernels.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::cpu;

namespace {

template <class T>
void check() {
  const CorrelateKernels<T>& kernels = correlate_kernels<T>();
  for (std::int64_t taps = 1; taps <= kMostCorrelated; ++taps)
    for (const std::int64_t count : {0, 1, 3, kernels.lanes, 5 * kernels.lanes, 5 * kernels.lanes + 1}) {
      std::vector<T> x(static_cast<std::size_t>(count)), y(static_cast<std::size_t>(count + 40));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(i % 7) - 3;
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<T>(i % 11) - 5;
      x.resize(x.size() + 16, T{0});
      y.resize(y.size() + 16, std::numeric_limits<T>::infinity());
      const std::vector<std::int64_t> offset = {3, 0, 1, 17, 2, 40, 9, 8};
      std::vector<double> sums(9, 0.5);
      kernels.correlate[taps - 1](x.data(), y.data(), offset.data(), count, sums.data());
      for (std::size_t k = 0; k < sums.size(); ++k) {
        double expected = 0.5;
        for (std::size_t i = 0; static_cast<std::int64_t>(k) < taps && i < static_cast<std::size_t>(count); ++i)
          expected += static_cast<double>(x[i] * y[i + static_cast<std::size_t>(offset[k])]);
        CHECK(sums[k] == expected);
      }
    }
}

}  // namespace

TEST_CASE("sums of a row against shifted rows, added to what was there") {
  testing::for_each_isa([] {
    check<float>();
    check<double>();
  });
}
