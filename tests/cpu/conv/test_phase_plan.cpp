#include "cpu/conv/phase_plan.hpp"

#include <doctest/doctest.h>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::cpu;
using testing::sized;

TEST_CASE("forward: every tap once, in the phase whose outputs it reaches") {
  for (const std::int64_t S : {1, 2, 3, 8})
    for (const std::int64_t D : {1, 2, 7})
      for (const std::int64_t P_l : {0, 3, 20}) {
        const ConvProblem p = sized({.L_in = 50, .K = 5, .S = S, .P_l = P_l, .D = D});
        const GatherShape shape = gather_shape(p, ConvDirection::forward);
        REQUIRE(static_cast<std::int64_t>(shape.phases.size()) == S);
        int taps = 0;
        for (std::int64_t r = 0; r < S; ++r)
          for (const Tap& tap : shape.phases[static_cast<std::size_t>(r)]) {
            ++taps;
            CHECK(tap.residue == 0);
            CHECK(r + P_l - tap.k * D == S * tap.shift);  // t = S*q + r meets x at q + shift
          }
        CHECK(taps == 5);
        CHECK(shape.q_count == (p.L_out + S - 1) / S);
      }
}

TEST_CASE("dgrad: one phase, every tap at S*(q + shift) + residue") {
  const ConvProblem p = sized({.L_in = 50, .K = 7, .S = 3, .P_l = 4, .D = 2});
  const GatherShape shape = gather_shape(p, ConvDirection::dgrad);
  REQUIRE(shape.phases.size() == 1);
  REQUIRE(shape.phases[0].size() == 7);
  for (const Tap& tap : shape.phases[0]) {
    CHECK(tap.residue >= 0);
    CHECK(tap.residue < 3);
    CHECK(3 * tap.shift + tap.residue == tap.k * 2 - 4);
  }
  CHECK(shape.q_count == 50);
}

TEST_CASE("inside the interior every tap reads the row, outside one does not") {
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad})
    for (const std::int64_t L_in : {1, 4, 30})
      for (const std::int64_t S : {1, 3, 8})
        for (const std::int64_t D : {1, 4})
          for (const std::int64_t P_l : {0, 2, 7}) {
            const ConvProblem p = sized({.L_in = L_in, .K = 5, .S = S, .P_l = P_l, .P_r = 1, .OP = 0, .D = D});
            if (p.L_out <= 0) continue;
            const GatherShape shape = gather_shape(p, direction);
            for (std::size_t r = 0; r < shape.phases.size(); ++r) {
              const Interior inner = interior(shape, r);
              CHECK(inner.begin <= inner.end);
              for (std::int64_t q = 0; q < shape.q_count; ++q) {
                bool inside = true;
                for (const Tap& tap : shape.phases[r]) {
                  const std::int64_t at = shape.in_stride * (q + tap.shift) + tap.residue;
                  inside = inside && at >= 0 && at < shape.in_length;
                }
                CHECK(inside == (q >= inner.begin && q < inner.end));
              }
            }
          }
}

TEST_CASE("taps nearby share a row, distant ones do not") {
  const GatherShape near = gather_shape(sized({.L_in = 50, .K = 3, .D = 3}), ConvDirection::forward);
  const TileLayout shared = tile_layout(near, 48, 16);
  REQUIRE(shared.segments.size() == 1);
  CHECK(shared.segments[0].span == 6);
  CHECK(shared.channel_pitch == 64);
  CHECK(shared.tap_offset[0] == std::vector<std::int64_t>{6, 3, 0});
  const GatherShape far = gather_shape(sized({.L_in = 5000, .K = 3, .D = 1000}), ConvDirection::forward);
  const TileLayout apart = tile_layout(far, 48, 16);
  CHECK(apart.segments.size() == 3);
  CHECK(apart.channel_pitch == 3 * 48);
  const TileLayout residues = tile_layout(gather_shape(sized({.L_in = 50, .K = 4, .S = 2}), ConvDirection::dgrad), 48, 16);
  CHECK(residues.segments.size() == 2);
}
