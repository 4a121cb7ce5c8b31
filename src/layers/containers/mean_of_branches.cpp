#include "layers/containers/mean_of_branches.hpp"

#include "layers/containers/branches.hpp"

namespace polyphase {

using layers::BranchSum;

Tensor MeanOfBranches::forward(const Tensor& x) { return layers::forward_branches(kName, modules(), x, BranchSum::mean); }

std::unique_ptr<ModuleStream> MeanOfBranches::make_stream() {
  return std::make_unique<layers::BranchesStream>(kName, modules(), BranchSum::mean);
}

}  // namespace polyphase
