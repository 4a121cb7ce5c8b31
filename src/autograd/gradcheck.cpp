#include "autograd/gradcheck.hpp"

#include <cmath>

#include "autograd/no_grad.hpp"
#include "tensor/random.hpp"

namespace polyphase {

namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Weights for the elements of the output, so that each of them changes the weighted sum differently.
Tensor weights_of(const Tensor& output) {
  Generator generator(20240607);
  return Tensor::uniform(output.shape(), 0.5, 1.5, {output.dtype(), output.device()}, &generator);
}

double weighted_sum(const Tensor& output) {
  const std::vector<double> values = output.to(DType::f64).to_vector<double>();
  const std::vector<double> weights = weights_of(output).to(DType::f64).to_vector<double>();
  long double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += static_cast<long double>(values[i]) * weights[i];
  return static_cast<double>(sum);
}

// The rank-0 view of one element, counted in row-major order.
Tensor element(const Tensor& tensor, std::int64_t flat, Shape& index) {
  index = Shape::filled(tensor.rank(), 0);
  for (int d = tensor.rank() - 1; d >= 0; --d) {
    index[d] = flat % tensor.size(d);
    flat /= tensor.size(d);
  }
  Tensor view = tensor;
  for (int d = 0; d < index.rank(); ++d) view = view.select(0, index[d]);
  return view;
}

double numeric_derivative(const Function& function, const std::vector<Tensor>& inputs, Tensor place, double step) {
  const double middle = place.item();
  const auto value_at = [&](double argument) {
    place.fill_(argument);
    return weighted_sum(function(inputs));
  };
  try {
    const double above = value_at(middle + step), below = value_at(middle - step);
    place.fill_(middle);
    return (above - below) / (2 * step);
  } catch (...) {
    place.fill_(middle);
    throw;
  }
}

// The same elements and strides as the inputs, but separate leaves: the caller's gradients are not touched.
std::vector<Tensor> fresh_leaves(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.defined() ? input.detach() : input);
    if (!input.defined() || !input.requires_grad()) continue;
    require<DTypeError>(input.dtype() == DType::f64, "gradcheck: expected inputs of f64, got ", input.dtype());
    leaves.back().set_requires_grad(true);
  }
  return leaves;
}

}  // namespace

std::string gradcheck(const Function& function, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  const std::vector<Tensor> leaves = fresh_leaves(inputs);
  const Tensor output = function(leaves);
  if (output.requires_grad()) output.backward(weights_of(output));

  const NoGradGuard no_grad;
  std::string worst;
  double worst_excess = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].defined() || !leaves[i].requires_grad()) continue;
    const Tensor gradient = leaves[i].grad();
    for (std::int64_t flat = 0; flat < leaves[i].numel(); ++flat) {
      Shape index;
      const double numeric = numeric_derivative(function, leaves, element(leaves[i], flat, index), options.step);
      const double analytic = gradient.defined() ? element(gradient, flat, index).item() : 0.0;
      const double allowed = options.absolute_tolerance + options.relative_tolerance * std::abs(numeric);
      const double excess = std::abs(analytic - numeric) / allowed;
      if (excess <= 1 || excess <= worst_excess) continue;  // a NaN passes neither test and is reported
      worst_excess = std::isnan(excess) ? INFINITY : excess;
      worst = concat("input ", i, ", index ", index, ": analytic ", analytic, ", numeric ", numeric);
    }
  }
  return worst;
}

}  // namespace polyphase
