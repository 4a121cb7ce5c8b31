#include "ops/mac_counter.hpp"

#include <doctest/doctest.h>

#include "ops/conv.hpp"
#include "ops/linear.hpp"
#include "ops/lstm.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("multiply-adds of a convolution, a matrix product and an LSTM") {
  const ops::MacCounter counter;
  static_cast<void>(conv_transpose1d(Tensor::ones({2, 3, 10}), Tensor::ones({3, 4, 5}), {}, {.stride = 2}));
  CHECK(counter.count() == 2 * 3 * 10 * 4 * 5);
  {
    const ops::MacCounter inner;
    static_cast<void>(matmul(Tensor::ones({7, 2, 3}), Tensor::ones({3, 4})));
    CHECK(inner.count() == 7 * 2 * 3 * 4);
  }
  CHECK(counter.count() == 2 * 3 * 10 * 4 * 5);
  const ops::MacCounter last;
  static_cast<void>(lstm(Tensor::ones({2, 6, 3}), {Tensor::ones({16, 3}), Tensor::ones({16, 4}), {}, {}}));
  CHECK(last.count() == 2 * 6 * 16 * (3 + 4));
}
