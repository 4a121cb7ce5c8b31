#pragma once
// A network's tensors by name, for tests that compute it step by step.

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "layers/module.hpp"
#include "ops/conv.hpp"
#include "support/helpers.hpp"

namespace polyphase::testing {

class NetworkState {
 public:
  explicit NetworkState(Module& net) : state_(net.state_dict()) {}

  [[nodiscard]] bool has(const std::string& name) const { return find(name) != state_.end(); }
  [[nodiscard]] Tensor operator()(const std::string& name) const {
    REQUIRE_MESSAGE(has(name), name);
    return find(name)->second;
  }
  /// The convolution NAME.weight, NAME.bias if there is one.
  [[nodiscard]] Tensor conv(const Tensor& x, const std::string& name, const Conv1dOptions& options = {}) const {
    return conv1d(x, (*this)(name + ".weight"), has(name + ".bias") ? (*this)(name + ".bias") : Tensor(), options);
  }

 private:
  [[nodiscard]] NamedTensors::const_iterator find(const std::string& name) const {
    return std::find_if(state_.begin(), state_.end(), [&](const auto& entry) { return entry.first == name; });
  }
  NamedTensors state_;
};

/// Every parameter becomes uniform numbers in [low, high), so that no bias is 0 and no scale 1.
inline void randomise(Module& net, double low = -0.3, double high = 0.3, std::uint64_t seed = 7) {
  for (Tensor parameter : net.parameters())
    parameter.detach().copy_(uniform_f64(parameter.shape(), low, high, ++seed).to(parameter.dtype()));
}

}  // namespace polyphase::testing
