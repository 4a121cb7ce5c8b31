#include "layers/containers/mean_of_branches.hpp"

#include "ops/elementwise.hpp"

namespace polyphase {

Tensor MeanOfBranches::forward(const Tensor& x) {
  require<ShapeError>(size() > 0, kName, ": expected at least one branch, got none");
  Tensor total = (*this)[0].forward(x);
  const Shape shape = total.shape();
  for (std::size_t i = 1; i < size(); ++i) {
    const Tensor y = (*this)[i].forward(x);
    require<ShapeError>(y.shape() == shape, kName, ": expected branches of one shape, got ", shape, " from branch 0 and ",
                        y.shape(), " from branch ", i);
    total = total + y;
  }
  return size() == 1 ? total : div(total, Tensor::full({}, static_cast<double>(size()), {total.dtype(), total.device()}));
}

}  // namespace polyphase
