#pragma once
// A few steps of training of a whole network.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/autocast.hpp"
#include "layers/module.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "optim/adam.hpp"

namespace polyphase::testing {

/// Checks that every parameter of the network has a finite gradient.
inline void require_gradients(Module& net) {
  for (const auto& parameter : net.named_parameters()) {
    CAPTURE(parameter.first);
    REQUIRE(parameter.second.grad().defined());
    REQUIRE(std::isfinite(sum(parameter.second.grad()).item()));
  }
}

/// Some steps of Adam towards `target`: the mean squared error falls by a tenth or more. The smallest error counts, because
/// codes of a quantizer jump. All parameters have gradients after each step, and in mixed precision.
inline void check_fine_tuning(Module& net, const Tensor& input, const Tensor& target, double learning_rate = 2e-3,
                              int steps = 10) {
  net.train();
  Adam optimizer(net.parameters(), {.learning_rate = learning_rate});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Tensor loss = mean(square(net(input) - target));
    losses.push_back(loss.item());
    loss.backward();
    require_gradients(net);
    optimizer.step();
  }
  CHECK(*std::min_element(losses.begin(), losses.end()) < 0.9 * losses.front());
  optimizer.zero_grad();
  const AutocastGuard guard(DType::bf16);
  mean(square(net(input) - target)).backward();
  require_gradients(net);
}

}  // namespace polyphase::testing
