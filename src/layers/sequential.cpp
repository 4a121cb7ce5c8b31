#include "layers/sequential.hpp"

#include <optional>
#include <string>

#include "layers/fused.hpp"

namespace polyphase {

Sequential& Sequential::push_back(std::shared_ptr<Module> module) {
  require<Error>(module != nullptr, "Sequential: module ", size(), " is null");
  modules_.push_back(std::move(module));
  return *this;
}

Module& Sequential::operator[](std::size_t index) const {
  require<ShapeError>(index < size(), "Sequential: expected a position below ", size(), ", got ", index);
  return *modules_[index];
}

void Sequential::visit(Visitor& visitor) {
  for (std::size_t i = 0; i < size(); ++i) visitor.module(std::to_string(i), *modules_[i]);
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (std::size_t i = 0; i < size(); ++i) {
    std::optional<Tensor> both;
    if (i + 1 < size()) both = layers::forward_fused(*modules_[i], *modules_[i + 1], y);
    if (both) ++i;
    y = both ? std::move(*both) : modules_[i]->forward(y);
  }
  return y;
}

}  // namespace polyphase
