#include "distributed/group.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "support/ranks.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

TEST_CASE("group: a process alone is rank 0 of 1, counts steps and starts nothing") {
  Group group = init({.place = Place{}, .device = Device::cpu()});
  CHECK(group.rank() == 0);
  CHECK(group.world() == 1);
  CHECK(group.is_first());
  CHECK(group.end_step());
  CHECK(group.step() == 1);
  group.barrier();
  CHECK_THROWS_WITH_AS((void)group.communicator(), "Group::communicator: a group of one process has none", Error);
  group.request_stop();
  CHECK_FALSE(group.end_step());
}

TEST_CASE("group: out() writes on rank 0 only") {
  CHECK(run_ranks(2, [](Group group) {
          std::ostringstream text;
          group.out(text) << "loss " << 1.5;
          RANK_CHECK(text.str() == (group.rank() == 0 ? "loss 1.5" : ""));
        }) == "");
}
