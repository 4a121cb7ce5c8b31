#include "autograd/no_grad.hpp"

#include <doctest/doctest.h>

#include <thread>

#include "ops/elementwise.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("guards nest and restore what was") {
  CHECK(grad_enabled());
  {
    const NoGradGuard off;
    CHECK_FALSE(grad_enabled());
    {
      const GradModeGuard on(true);
      CHECK(grad_enabled());
    }
    CHECK_FALSE(grad_enabled());
  }
  CHECK(grad_enabled());
}

TEST_CASE("nothing is recorded under NoGradGuard") {
  const Tensor x = leaf_of({1, 2});
  const NoGradGuard off;
  CHECK_FALSE((x * 2.0).requires_grad());
  CHECK(x.requires_grad());
}

TEST_CASE("a guard concerns its own thread only") {
  const NoGradGuard off;
  bool other = false;
  std::thread([&] { other = grad_enabled(); }).join();
  CHECK(other);
}
