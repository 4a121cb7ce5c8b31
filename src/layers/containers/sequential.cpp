#include "layers/containers/sequential.hpp"

#include "layers/containers/sequential_stream.hpp"
#include "layers/fused.hpp"

namespace polyphase {

Tensor Sequential::forward(const Tensor& x) { return layers::forward_all(modules(), x); }

std::unique_ptr<ModuleStream> Sequential::make_stream() { return std::make_unique<layers::SequentialStream>(modules()); }

}  // namespace polyphase
