#include "cpu/conv/minimal_plan.hpp"

#include <doctest/doctest.h>

#include "support/conv.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

cpu::GatherShape shape_of(std::int64_t K, std::int64_t D, ConvDirection direction = ConvDirection::dgrad) {
  return cpu::gather_shape(sized({.C_in = 3, .C_out = 2, .L_in = 100, .K = K, .P_l = 1, .D = D}), direction);
}

}  // namespace

TEST_CASE("multiplications per lane: fewer than K for each output") {
  const struct {
    std::int64_t K, phases, count;
  } expected[] = {{3, 2, 4}, {5, 4, 13}, {6, 4, 12}, {7, 4, 16}, {8, 4, 18}, {9, 4, 22}, {11, 4, 25}, {12, 4, 24}, {13, 4, 28}};
  for (const auto& [K, phases, count] : expected) {
    const cpu::MinimalPlan plan = cpu::minimal_plan(shape_of(K, 1), 1, 48, 16);
    CHECK(plan.phases == phases);
    CHECK(plan.multiplications() == count);
    CHECK(count < K * phases);
  }
}

TEST_CASE("taps in ascending shift, in both directions") {
  const cpu::MinimalPlan dgrad = cpu::minimal_plan(shape_of(7, 2), 2, 48, 16);
  CHECK(dgrad.first == -1);
  CHECK(dgrad.order == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6});
  const cpu::MinimalPlan forward = cpu::minimal_plan(shape_of(7, 2, ConvDirection::forward), 2, 48, 16);
  CHECK(forward.first == 1 - 6 * 2);
  CHECK(forward.order == std::vector<std::int64_t>{6, 5, 4, 3, 2, 1, 0});
}

TEST_CASE("rows and products stay within what is packed") {
  for (const std::int64_t lanes : {4, 8, 16})
    for (const std::int64_t K : {3, 5, 6, 7, 8, 11, 16, 32})
      for (const std::int64_t D : {1, 2, 3, 5, 7}) {
        const std::int64_t width = 3 * lanes;
        if (!cpu::has_minimal_plan(shape_of(K, D), D, width)) continue;
        const cpu::MinimalPlan plan = cpu::minimal_plan(shape_of(K, D), D, width, lanes);
        CHECK(plan.lanes_used % D == 0);
        CHECK(plan.lanes_used <= width);
        CHECK(plan.line >= plan.phases * plan.sequence);
        CHECK(plan.sequence_pitch >= plan.sequence + D + cpu::kRunSlack);
        for (const cpu::RowSum& sum : plan.sums) CHECK(sum.b % plan.sequence_pitch + plan.sum_count <= plan.sequence);
        for (const cpu::MinimalPart& part : plan.parts) {
          for (const cpu::RowSum& row : part.rows) {
            CHECK(row.to + plan.row <= part.pitch);
            CHECK(row.a % plan.sequence_pitch + plan.row <= plan.sum_count);
            CHECK(row.b % plan.sequence_pitch + plan.row <= plan.sum_count);
            CHECK(row.a < plan.sequences * plan.sequence_pitch);
          }
          for (const auto& products : part.products)
            for (const cpu::MinimalProduct& product : products) CHECK(product.offset % plan.row + width <= plan.row);
        }
      }
}

TEST_CASE("what has no plan") {
  CHECK(cpu::has_minimal_plan(shape_of(3, 1), 1, 48));
  for (const std::int64_t K : {1, 2, 4, 33}) CHECK_FALSE(cpu::has_minimal_plan(shape_of(K, 1), 1, 48));
  CHECK_FALSE(cpu::has_minimal_plan(shape_of(11, 60), 60, 48));
  CHECK_FALSE(cpu::has_minimal_plan(
      cpu::gather_shape(sized({.C_in = 2, .C_out = 2, .L_in = 9, .K = 3, .S = 2}), ConvDirection::forward), 1, 48));
}
