#include "cpu/conv/conv_kernels.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::cpu;

namespace {

template <class T>
std::vector<T> integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random() % 5) - 2;
  return values;
}

/// One register tile against the three loops of its definition, on integers.
template <class T>
void check_tile(int kind, int vectors, std::int64_t count, bool from_start) {
  const GemmKernels<T>& kernels = gemm_kernels<T>();
  const std::int64_t rows = std::int64_t{1} << kind, positions = std::int64_t{vectors} * kernels.lanes, pitch = positions + 5;
  std::vector<std::int32_t> offset;
  for (std::int64_t j = 0; j < count; ++j) offset.push_back(static_cast<std::int32_t>(j * 37 % 101));
  offset.resize(offset.size() + kOffsetSlack);
  const auto w = integers<T>(static_cast<std::size_t>(rows * count + 1), 1);
  const auto x = integers<T>(static_cast<std::size_t>(101 + positions), 2);
  const auto start = integers<T>(static_cast<std::size_t>(rows), 3);
  std::vector<T> out(static_cast<std::size_t>(rows * pitch), T{9});
  kernels.micro[kind][vectors](w.data(), x.data(), offset.data(), count, from_start ? start.data() : nullptr, out.data(),
                               pitch);
  int wrong = 0;
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t p = 0; p < pitch; ++p) {
      T expected = from_start && p < positions ? start[static_cast<std::size_t>(m)] : T{9};
      for (std::int64_t j = 0; j < count && p < positions; ++j)
        expected +=
            w[static_cast<std::size_t>(j * rows + m)] * x[static_cast<std::size_t>(offset[static_cast<std::size_t>(j)] + p)];
      wrong += out[static_cast<std::size_t>(m * pitch + p)] != expected;
    }
  CHECK_MESSAGE(wrong == 0, cpu_isa(), ": ", rows, " rows by ", vectors, " vectors, ", count, " steps");
}

template <class T>
void check_all() {
  for (int kind = 0; kind < kPanelKinds; ++kind)
    for (int vectors = 1; vectors <= gemm_kernels<T>().widest[kind]; ++vectors)
      for (const std::int64_t count : {0, 1, 2, 19})
        for (const bool from_start : {true, false}) check_tile<T>(kind, vectors, count, from_start);
}

}  // namespace

TEST_CASE("every register tile of every instruction set") {
  testing::for_each_isa([] {
    CHECK(gemm_kernels<float>().widest[0] >= 1);
    check_all<float>();
    check_all<double>();
  });
}
