#pragma once
// Codes for small codec decoders, and a training of such a decoder.

#include <cstdint>
#include <vector>

#include "layers/losses.hpp"
#include "layers/module.hpp"
#include "ops/elementwise.hpp"
#include "optim/adam.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::testing {

/// Irregular codes below `bins`, (N, K, L).
inline Tensor some_codes(const Shape& shape, std::int64_t bins) {
  std::vector<std::int64_t> codes(static_cast<std::size_t>(shape.numel()));
  std::uint64_t state = 7;
  for (std::int64_t& code : codes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    code = static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(bins));
  }
  return Tensor::from_vector(codes, shape);
}

/// The mean squared difference from `target` before and after this many steps of Adam.
struct Losses {
  double first, last;
};
inline Losses fine_tuned(Module& net, const Tensor& input, const Tensor& target, int steps) {
  Adam optimizer(net.parameters(), AdamOptions{.learning_rate = 2e-3});
  Losses losses{};
  for (int i = 0; i <= steps; ++i) {
    const Tensor loss = mse_loss(net(input), target);
    losses.last = loss.item();
    if (i == 0) losses.first = losses.last;
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  return losses;
}

}  // namespace polyphase::testing
