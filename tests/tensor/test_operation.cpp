#include "tensor/operation.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>

using polyphase::OperationScope;

TEST_CASE("the outermost scope names the operation, on its own thread") {
  CHECK(OperationScope::name() == nullptr);
  {
    const OperationScope outer("allclose");
    {
      const OperationScope inner("item");
      CHECK(OperationScope::name() == std::string("allclose"));
    }
    CHECK(OperationScope::name() == std::string("allclose"));
    std::thread([] { CHECK(OperationScope::name() == nullptr); }).join();
  }
  CHECK(OperationScope::name() == nullptr);
}
