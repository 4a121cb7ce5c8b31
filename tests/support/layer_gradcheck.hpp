#pragma once
// gradcheck of a whole module: its input and all its parameters.

#include <string>
#include <utility>
#include <vector>

#include "autograd/gradcheck.hpp"
#include "layers/module.hpp"
#include "tensor/random.hpp"

namespace polyphase::testing {

/// Replaces a module's parameters by other tensors, in order.
class ParameterReplacer : public Visitor {
 public:
  ParameterReplacer(Module& module, std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
    module.visit(*this);
  }
  void parameter(std::string_view, Tensor& tensor) override {
    if (tensor.defined()) tensor = parameters_.at(next_++);
  }
  void buffer(std::string_view, Tensor&) override {}
  void module(std::string_view, Module& child) override { child.visit(*this); }

 private:
  std::vector<Tensor> parameters_;
  std::size_t next_ = 0;
};

/// Returns the worst disagreement in words, empty if there is none. The module becomes f64; input 0 is x (normal random), the
/// rest are its parameters.
inline std::string layer_gradcheck(Module& module, const Shape& x_shape) {
  module.to(DType::f64);
  Generator generator(11);
  std::vector<Tensor> inputs{Tensor::randn(x_shape, {.dtype = DType::f64, .requires_grad = true}, &generator)};
  for (const Tensor& parameter : module.parameters()) inputs.push_back(parameter);
  return gradcheck(
      [&module](const std::vector<Tensor>& leaves) {
        ParameterReplacer(module, {leaves.begin() + 1, leaves.end()});
        return module(leaves[0]);
      },
      inputs);
}

}  // namespace polyphase::testing
