#include "layers/containers/sum_of_branches.hpp"

#include "layers/containers/branches.hpp"

namespace polyphase {

using layers::BranchSum;

Tensor SumOfBranches::forward(const Tensor& x) { return layers::forward_branches(kName, modules(), x, BranchSum::plain); }

std::unique_ptr<ModuleStream> SumOfBranches::make_stream() {
  return std::make_unique<layers::BranchesStream>(kName, modules(), BranchSum::plain);
}

}  // namespace polyphase
