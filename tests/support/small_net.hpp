#pragma once
// A small network and its batches, the same in every process: what the tests of several ranks train.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "layers/activations.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "support/helpers.hpp"
#include "tensor/random.hpp"

namespace polyphase::testing {

inline Sequential make_small_net(std::uint64_t seed) {
  Generator generator(seed);
  const GeneratorGuard guard(generator);
  return Sequential(Conv1d({.in_channels = 2, .out_channels = 6, .kernel_size = 3, .padding = 1}), Tanh(),
                    Conv1d({.in_channels = 6, .out_channels = 5, .kernel_size = 3, .padding = 1}), LeakyReLU(0.1),
                    Conv1d({.in_channels = 5, .out_channels = 2, .kernel_size = 1}));
}

/// (8, 2, 20): inputs (`what` 1) or targets (2) of a step.
inline Tensor small_batch(std::int64_t step, std::uint64_t what) {
  Generator generator(1000 * static_cast<std::uint64_t>(step) + what);
  return Tensor::randn({8, 2, 20}, {}, &generator);
}

/// The i-th of `parts` equal parts of a batch.
inline Tensor part_of(const Tensor& batch, int i, int parts) {
  const std::int64_t size = batch.size(0) / parts;
  return batch.narrow(0, i * size, size);
}

using Weights = std::vector<float>;

inline Weights weights_of(Module& net) {
  Weights weights;
  for (const auto& [name, tensor] : net.state_dict())
    if (is_floating_point(tensor.dtype()))
      for (const float value : tensor.to_vector<float>()) weights.push_back(value);
  return weights;
}

inline double difference(const Weights& a, const Weights& b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.size(); ++i) worst = worse(worst, std::abs(static_cast<double>(a[i]) - b[i]));
  return worst;
}

}  // namespace polyphase::testing
