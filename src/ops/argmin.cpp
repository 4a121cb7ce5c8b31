#include "ops/argmin.hpp"

#include "autograd/no_grad.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"

namespace polyphase {
namespace {

constexpr std::int64_t kLargestInF32 = std::int64_t{1} << 24;

// The smallest number of a position whose element is the extreme one.
Tensor position_of(const char* name, ReduceOp op, const Tensor& x, int dim) {
  ops::require_floating(name, x);
  const int d = normalize_dim(name, dim, x.rank());
  const std::int64_t size = x.size(d);
  require<ShapeError>(size >= 1, name, ": expected at least one element along dimension ", dim, ", got ", x.shape());
  const NoGradGuard no_grad;
  const DType dtype = size <= kLargestInF32 ? DType::f32 : DType::f64;  // holds every position
  Shape kept = x.shape();
  kept[d] = 1;
  // A NaN wins the reduction and equals nothing, itself included.
  const Tensor extreme = ops::reduce(op, x, kept);
  const Tensor is_found = maximum(equal(x, extreme), 1.0 - equal(x, x)).to(dtype);
  Shape along = Shape::filled(x.rank(), 1);
  along[d] = size;
  const TensorOptions options{dtype, x.device()};
  const Tensor positions = Tensor::arange(0, static_cast<double>(size), 1, options).reshape(along);
  const Tensor candidates = where(is_found, positions, Tensor::full({}, static_cast<double>(size), options));
  return ops::reduce(ReduceOp::min, candidates, kept).squeeze(d).to(DType::i64);
}

}  // namespace

Tensor argmin(const Tensor& x, int dim) { return position_of("argmin", ReduceOp::min, x, dim); }
Tensor argmax(const Tensor& x, int dim) { return position_of("argmax", ReduceOp::max, x, dim); }

}  // namespace polyphase
