#include "layers/containers/module_list.hpp"

#include "tensor/error.hpp"

namespace polyphase {

Tensor ModuleList::forward(const Tensor&) {
  throw NotImplemented(
      concat("ModuleList: expected its ", size(),
             " modules to be called one by one, got a call of the list, which has no forward; Sequential has one"));
}

}  // namespace polyphase
