#include "layers/sequential.hpp"

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

Tensor Sequential::forward(const Tensor& x) { return layers::forward_all(modules_, x); }

}  // namespace polyphase
