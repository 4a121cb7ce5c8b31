#include <doctest/doctest.h>

#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

}  // namespace

TEST_CASE("split takes every lane's elements, merge puts them back and writes nothing else") {
  for_each_isa([] {
    const auto& kernels = cpu::minimal_kernels();
    const std::int64_t lanes = cpu::gemm_kernels<float>().lanes;
    for (const std::int64_t phases : {2, 4})
      for (const std::int64_t D : {1, 2, 3, 5, 8, 9, 13}) {
        const std::int64_t count = 3 * lanes / D * D, pitch = 4 * lanes + D + cpu::kRunSlack, length = phases * count;
        const std::vector<float> line =
            counted(static_cast<std::size_t>(length + phases * (lanes + D) + 4 * lanes + cpu::kRunSlack));
        std::vector<float> sequences(static_cast<std::size_t>(phases * pitch + cpu::kRunSlack));
        kernels.split(line.data(), phases, D, count, sequences.data(), pitch);
        for (std::int64_t p = 0; p < count; ++p)
          for (std::int64_t b = 0; b < phases; ++b)
            CHECK(sequences[static_cast<std::size_t>(b * pitch + p)] ==
                  static_cast<float>(phases * D * (p / D) + b * D + p % D + 1));
        if (D == 1 || count == 0) continue;  // PackKernels::interleave merges single elements
        for (const std::int64_t last : {length, length - 1, length - D, length / 2, std::int64_t{1}}) {
          std::vector<float> out(static_cast<std::size_t>(length + 1), -1);
          kernels.merge(sequences.data(), pitch, phases, D, count, last, out.data());
          for (std::int64_t t = 0; t <= length; ++t)
            CHECK(out[static_cast<std::size_t>(t)] == (t < last ? static_cast<float>(t + 1) : -1.0F));
        }
      }
  });
}

TEST_CASE("magnitudes, sums of rows, outputs of sums") {
  for_each_isa([] {
    const auto& kernels = cpu::minimal_kernels();
    const auto lanes = static_cast<std::size_t>(cpu::gemm_kernels<float>().lanes);
    const auto count = static_cast<std::int64_t>(lanes);
    std::vector<float> line = counted(lanes), sums(lanes, 1), squares(lanes, 2);
    for (std::size_t i = 0; i < lanes; i += 2) line[i] = -line[i];
    kernels.add_magnitudes(line.data(), count, sums.data(), squares.data());
    for (std::size_t i = 0; i < lanes; ++i) {
      const auto value = static_cast<float>(i + 1);
      CHECK(sums[i] == value + 1);
      CHECK(squares[i] == value * value + 2);
    }
    const std::vector<float> from = counted(3 * lanes);
    std::vector<float> to(3 * lanes);
    const cpu::RowSum rows[] = {{.to = 0, .a = 1, .b = 2, .sign = 1},
                                {.to = count, .a = 2, .b = 0, .sign = -1},
                                {.to = 2 * count, .a = 3, .b = 3, .sign = 0}};
    kernels.combine(rows, 3, from.data(), to.data(), count);
    for (std::size_t i = 0; i < lanes; ++i) {
      CHECK(to[i] == from[i + 1] + from[i + 2]);
      CHECK(to[lanes + i] == 2);
      CHECK(to[2 * lanes + i] == from[i + 3]);
    }
    const std::vector<float> m = counted(4 * lanes);
    std::vector<float> two(2 * lanes), four(4 * lanes);
    kernels.two_outputs(m.data(), count, count, two.data());
    kernels.four_outputs(m.data(), m.data() + 2 * lanes, two.data(), count, four.data());
    for (std::size_t i = 0; i < lanes; ++i) {
      CHECK(two[i] == m[i] + m[lanes + i] + m[2 * lanes + i]);
      CHECK(two[lanes + i] == m[lanes + i] - m[2 * lanes + i] - m[3 * lanes + i]);
      CHECK(four[i] == m[i] + m[2 * lanes + i]);
      CHECK(four[lanes + i] == m[2 * lanes + i] - two[i]);
      CHECK(four[2 * lanes + i] == m[lanes + i] + m[3 * lanes + i]);
      CHECK(four[3 * lanes + i] == m[3 * lanes + i] - two[lanes + i]);
    }
  });
}
