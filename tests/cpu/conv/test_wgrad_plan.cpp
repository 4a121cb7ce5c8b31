#include "cpu/conv/wgrad_plan.hpp"

#include <doctest/doctest.h>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::cpu;
using testing::sized;

TEST_CASE("row tap_row[k] + i*step is the one that position S*i + k*D of the window went to") {
  for (const std::int64_t C_out : {1, 40})
    for (const std::int64_t S : {1, 2, 5})
      for (const std::int64_t D : {1, 3})
        for (const std::int64_t K : {2, 6}) {
          const ConvProblem p = sized({.C_in = 8, .C_out = C_out, .L_in = 64, .K = K, .S = S, .D = D});
          const WindowLayout layout = window_layout(p, 64, 16);
          if (layout.where.empty()) {  // taps one by one
            for (std::int64_t k = 0; k < K; ++k) CHECK(layout.tap_row[static_cast<std::size_t>(k)] == k * 64);
            continue;
          }
          int wrong = 0;
          for (std::int64_t k = 0; k < K; ++k)
            for (std::int64_t i = 0; i < 64; ++i)
              wrong += layout.where[static_cast<std::size_t>(S * i + k * D)] !=
                       layout.tap_row[static_cast<std::size_t>(k)] + i * layout.step;
          CHECK(wrong == 0);
          CHECK(layout.joint == (D == 1 && C_out == 1));
        }
}

TEST_CASE("few input channels: vectors run across taps even where output channels are many") {
  CHECK(window_layout(sized({.C_in = 1, .C_out = 40, .L_in = 64, .K = 7}), 64, 16).joint);
  CHECK(!window_layout(sized({.C_in = 8, .C_out = 40, .L_in = 64, .K = 7}), 64, 16).joint);
}

TEST_CASE("strides that skip most of y, and far taps, are packed tap by tap") {
  CHECK(window_layout(sized({.C_out = 40, .L_in = 64, .K = 2, .S = 9}), 64, 16).where.empty());
  CHECK(window_layout(sized({.C_out = 40, .L_in = 64, .K = 2, .D = 1000}), 64, 16).where.empty());
}

TEST_CASE("blocks: whole short rows together, long rows in equal parts, memory bounded") {
  const BlockShape whole = block_shape(sized({.N = 100, .C_out = 40, .L_in = 50, .K = 3}), 16);
  CHECK(whole.samples == 10);
  CHECK(whole.positions == 50);
  const BlockShape few = block_shape(sized({.N = 2, .C_out = 40, .L_in = 50, .K = 3}), 16);
  CHECK(few.samples == 2);
  const BlockShape part = block_shape(sized({.N = 2, .C_out = 40, .L_in = 1025, .K = 3}), 16);
  CHECK(part.samples == 1);
  CHECK(part.positions == 342);
  const BlockShape large = block_shape(sized({.C_out = 4096, .L_in = 1000, .K = 64, .S = 64}), 16);
  CHECK(large.positions < 100);
}
