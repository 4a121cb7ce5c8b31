#include "conv/workspace.hpp"

#include <doctest/doctest.h>

using namespace polyphase;

TEST_CASE("the limit is 256 MiB until it is set") {
  const std::size_t before = conv_workspace_limit();
  CHECK(before == 256U * 1024 * 1024);
  set_conv_workspace_limit(12345);
  CHECK(conv_workspace_limit() == 12345);
  set_conv_workspace_limit(before);
}
