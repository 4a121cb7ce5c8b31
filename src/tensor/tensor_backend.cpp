#include "tensor/tensor_backend.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

namespace polyphase {
namespace {

// The next number towards minus infinity.
template <class T>
T before(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(x, -std::numeric_limits<T>::infinity());
  } else {  // sign and magnitude
    const int step = (x.bits & 0x8000) != 0 ? 1 : -1;
    x.bits = x.bits == 0 ? std::uint16_t{0x8001} : static_cast<std::uint16_t>(x.bits + step);
    return x;
  }
}

/// A contiguous tensor with another shape and strides, which is not copied.
Tensor viewed(const Tensor& tensor, const Shape& shape, const Shape& strides) {
  return TensorAccess::view(tensor, shape, strides, tensor.offset());
}

/// (R, 1, ...) as rows of `shape` (R, ...).
Tensor along_rows(const Tensor& rows, const Shape& shape) {
  Shape strides = Shape::filled(shape.rank(), 0);
  strides[0] = 1;
  return viewed(rows, shape, strides);
}

/// A single number in all places of `shape`.
Tensor everywhere(const Tensor& number, const Shape& shape) { return viewed(number, shape, Shape::filled(shape.rank(), 0)); }

/// `tensor` as it is, or in `dtype`.
Tensor converted(TensorBackend& backend, const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() == dtype) return tensor;
  const Tensor result = Tensor::empty(tensor.shape(), {dtype, tensor.device()});
  backend.copy(result, tensor);
  return result;
}

}  // namespace

std::unique_ptr<BackendFork> TensorBackend::make_fork(std::size_t /*parts*/) { return nullptr; }
bool TensorBackend::is_in_part() const { return false; }
void TensorBackend::announce(std::span<const Tensor>) {}

double uniform_limit(double low, double high, DType dtype) {
  return dispatch(dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return high;
    } else {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      const T from(static_cast<Wide>(low)), to(static_cast<Wide>(high));
      const T limit = static_cast<Wide>(from) < static_cast<Wide>(to) ? before(to) : from;
      return static_cast<double>(static_cast<Wide>(limit));
    }
  });
}

Tensor Moments::mean_everywhere() const {
  Shape strides = mean.strides();
  for (int d = 0; d < mean.rank(); ++d)
    if (mean.shape()[d] != centred.shape()[d]) strides[d] = 0;
  return Tensor::over(mean.storage(), centred.shape(), strides, mean.offset(), mean.dtype());
}

void TensorBackend::advance(const Tensor& all, const Tensor& kept, const Tensor& x) {
  const std::int64_t K = kept.shape()[2], n = x.shape()[2], C = all.shape()[3];
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    Shape shape = all.shape();
    shape[2] = count;
    return TensorAccess::view(all, shape, all.strides(), all.offset() + first * C);
  };
  if (K > 0) copy(rows(0, K), kept);
  if (n > 0) copy(rows(K, n), x);
  if (K > 0 && n > 0) copy(kept, rows(n, K));
}
bool TensorBackend::normalize_channels(const NormOutputs&, const NormInputs&) { return false; }
bool TensorBackend::linear(const Tensor&, const LinearInputs&) { return false; }
bool TensorBackend::attention(const Tensor&, const AttentionInputs&) { return false; }
std::int64_t TensorBackend::rotary_attention_positions(DType, std::int64_t) const { return 0; }
void TensorBackend::rotary_attention(const Tensor&, const RotaryAttention&) {
  throw NotImplemented("rotary_attention: the device has no such kernel");
}

Tensor TensorBackend::derived(const Tensor& in, std::span<const MapStep> steps) {
  const Tensor out = Tensor::empty(in.shape(), {in.dtype(), in.device()});
  const Tensor* from = &in;
  for (const MapStep& step : steps) map(step.op, out, std::array{*std::exchange(from, &out)}, step.scalars);
  return out;
}

void TensorBackend::average_of(const Tensor& out, std::span<const Tensor> parts, double divisor, Activation activation,
                               double slope) {
  if (parts.size() == 1) copy(out, parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) map(MapOp::add, out, std::array{i == 1 ? parts[0] : out, parts[i]}, {});
  if (divisor != 1) {
    const Tensor number = Tensor::full({}, divisor, {out.dtype(), out.device()});
    map(MapOp::div, out, std::array{out, everywhere(number, out.shape())}, {});
  }
  if (activation == Activation::relu) map(MapOp::relu, out, std::array{out}, {});
  if (activation == Activation::leaky_relu) map(MapOp::leaky_relu, out, std::array{out}, {slope, 0});
}

void TensorBackend::weight_norm(std::span<const NormalizedWeight> weights) {
  for (const auto& [w, norms, v, g] : weights) {
    reduce(ReduceOp::sum_of_squares, norms, v);
    map(MapOp::sqrt, norms, std::array{norms}, {});
    const Tensor scale = Tensor::empty_like(norms);
    map(MapOp::div, scale, std::array{g, norms}, {});
    const Tensor product = w.dtype() == v.dtype() ? w : Tensor::empty_like(v);
    map(MapOp::mul, product, std::array{v, along_rows(scale, v.shape())}, {});
    if (w.dtype() != v.dtype()) copy(w, product);
  }
}

void TensorBackend::weight_norm_backward(std::span<const NormalizedWeightGradient> gradients) {
  for (const auto& [dv, dg, dw, v, g, norms] : gradients) {
    const Tensor product = Tensor::empty_like(v), scale = Tensor::empty_like(norms), along = Tensor::empty_like(norms);
    const Tensor in = converted(*this, dw, v.dtype());
    map(MapOp::mul, product, std::array{in, v}, {});
    reduce(ReduceOp::sum, dg, product);
    map(MapOp::div, dg, std::array{dg, norms}, {});
    map(MapOp::div, scale, std::array{g, norms}, {});
    map(MapOp::div, along, std::array{dg, norms}, {});
    map(MapOp::mul, along, std::array{scale, along}, {});
    map(MapOp::mul, dv, std::array{in, along_rows(scale, v.shape())}, {});
    map(MapOp::mul, product, std::array{v, along_rows(along, v.shape())}, {});
    map(MapOp::sub, dv, std::array{dv, product}, {});
  }
}

namespace {

/// x/max(||x||, 1e-12), PyTorch's normalize().
void unit_in_place(TensorBackend& backend, const Tensor& x) {
  const Tensor norm = Tensor::empty({1}, {x.dtype(), x.device()});
  backend.reduce(ReduceOp::sum_of_squares, norm, x);
  backend.map(MapOp::sqrt, norm, std::array{norm}, {});
  backend.map(MapOp::clamp, norm, std::array{norm}, {1e-12, std::numeric_limits<double>::infinity()});
  backend.map(MapOp::div, x, std::array{x, everywhere(norm, x.shape())}, {});
}

}  // namespace

void TensorBackend::spectral_norm(std::span<const SpectralWeight> weights) {
  for (const auto& [w, sigma, left, right, W, left_start, right_start, iterates] : weights) {
    const std::int64_t R = left.numel(), C = right.numel();
    const Tensor matrix = viewed(W, {1, R, C}, {0, C, 1}), along = Tensor::empty_like(left);
    if (iterates) {
      matmul(viewed(right, {1, 1, C}, {0, C, 1}), viewed(left_start, {1, 1, R}, {0, R, 1}), matrix);
      unit_in_place(*this, right);
      copy(right_start, right);
    }
    matmul(viewed(along, {1, R, 1}, {0, 1, 1}), matrix, viewed(right, {1, C, 1}, {0, 1, 1}));
    if (iterates) {
      copy(left, along);
      unit_in_place(*this, left);
      copy(left_start, left);
    }
    map(MapOp::mul, along, std::array{left, along}, {});
    reduce(ReduceOp::sum, viewed(sigma, {1}, {1}), along);
    const Tensor quotient = w.dtype() == W.dtype() ? w : Tensor::empty_like(W);
    map(MapOp::div, quotient, std::array{W, everywhere(sigma, W.shape())}, {});
    if (w.dtype() != W.dtype()) copy(w, quotient);
  }
}

void TensorBackend::spectral_norm_backward(std::span<const SpectralWeightGradient> gradients) {
  for (const auto& [dW, dw, W, sigma, left, right] : gradients) {
    const std::int64_t R = left.numel(), C = right.numel();
    const Tensor product = Tensor::empty({R, C}, {W.dtype(), W.device()}),
                 share = Tensor::empty({1, 1}, {W.dtype(), W.device()});
    const auto flat = [&](const Tensor& tensor) { return viewed(tensor, {R, C}, {C, 1}); };
    const Tensor in = converted(*this, dw, W.dtype());
    map(MapOp::mul, product, std::array{flat(in), flat(W)}, {});
    reduce(ReduceOp::sum, share, product);
    map(MapOp::div, share, std::array{share, viewed(sigma, {1, 1}, {1, 1})}, {});
    map(MapOp::mul, product, std::array{along_rows(left, {R, C}), viewed(right, {R, C}, {0, 1})}, {});
    map(MapOp::mul, product, std::array{product, everywhere(share, product.shape())}, {});
    map(MapOp::sub, product, std::array{flat(in), product}, {});
    map(MapOp::div, flat(dW), std::array{product, everywhere(sigma, product.shape())}, {});
  }
}

void TensorBackend::pair_gradient(MapOp op, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& gradient,
                                  MapScalars scalars) {
  const Tensor result = Tensor::empty(out.shape(), {DType::f32, out.device()});
  map(op, result,
      std::array{converted(*this, a, DType::f32), converted(*this, b, DType::f32), everywhere(gradient, out.shape())}, scalars);
  copy(out, result);
}

namespace {

Tensor as_matrix(const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  return TensorAccess::view(tensor, {1, rows, columns}, {rows * columns, columns, 1}, tensor.offset());
}

Tensor transposed_matrix(const Tensor& tensor) {
  const std::int64_t rows = tensor.shape()[0], columns = tensor.shape()[1];
  return TensorAccess::view(tensor, {1, columns, rows}, {0, 1, columns}, tensor.offset());
}

}  // namespace

void TensorBackend::lstm_input(std::span<const LstmSteps> layers, std::size_t k) {
  if (k == 0) return;
  const Tensor &gates = layers[k].gates, &below = layers[k - 1].hidden;
  const std::int64_t rows = gates.shape()[0] * gates.shape()[1];
  matmul(as_matrix(gates, rows, gates.shape()[2]), as_matrix(below, rows, below.shape()[2]),
         transposed_matrix(converted(*this, layers[k].input_weight, gates.dtype())));
}

LstmSteps TensorBackend::lstm_converted(LstmSteps layer) {
  for (Tensor* weight : {&layer.weight, &layer.input_bias, &layer.hidden_bias})
    *weight = converted(*this, *weight, layer.gates.dtype());
  return layer;
}

void TensorBackend::lstm(std::span<const LstmSteps> layers) {
  for (std::size_t k = 0; k < layers.size(); ++k) {
    lstm_input(layers, k);
    lstm_steps(lstm_converted(layers[k]));
  }
}

void TensorBackend::lstm_steps(const LstmSteps& layer) {
  const auto& gates = layer.gates;
  const std::int64_t T = gates.shape()[0], N = gates.shape()[1], H = layer.weight.shape()[1];
  // `count` columns of step t from column `first` on, as (1, N, count).
  const auto part = [N](const Tensor& of, std::int64_t t, std::int64_t first, std::int64_t count) {
    const std::int64_t width = of.shape()[2];
    return TensorAccess::view(of, {1, N, count}, {N * width, width, 1}, of.offset() + t * N * width + first);
  };
  const TensorOptions alike{gates.dtype(), gates.device()};
  const auto before = [&](const Tensor& given) {
    if (given.defined()) return as_matrix(given, N, H);
    const Tensor zeros = Tensor::empty({1, N, H}, alike);
    fill(zeros, 0);
    return zeros;
  };
  Tensor bias = layer.input_bias.defined() ? layer.input_bias : layer.hidden_bias;
  if (layer.input_bias.defined() && layer.hidden_bias.defined()) {
    bias = Tensor::empty(bias.shape(), alike);
    map(MapOp::add, bias, std::array{layer.input_bias, layer.hidden_bias}, {});
  }
  if (bias.defined())
    map(MapOp::add, gates, std::array{gates, TensorAccess::view(bias, gates.shape(), {0, 0, 1}, bias.offset())}, {});
  const Tensor recurrent = Tensor::empty({1, N, 4 * H}, alike), product = Tensor::empty({1, N, H}, alike);
  Tensor h = before(layer.h), c = before(layer.c);
  for (std::int64_t t = 0; t < T; ++t) {
    const Tensor all = part(gates, t, 0, 4 * H), i = part(gates, t, 0, H), f = part(gates, t, H, H);
    const Tensor g = part(gates, t, 2 * H, H), o = part(gates, t, 3 * H, H), sigmoids = part(gates, t, 0, 2 * H);
    const Tensor cell = part(layer.cells, t, 0, H);
    matmul(recurrent, h, transposed_matrix(layer.weight));
    map(MapOp::add, all, std::array{all, recurrent}, {});
    map(MapOp::sigmoid, sigmoids, std::array{sigmoids}, {});
    map(MapOp::tanh, g, std::array{g}, {});
    map(MapOp::sigmoid, o, std::array{o}, {});
    map(MapOp::mul, product, std::array{i, g}, {});
    map(MapOp::mul, cell, std::array{f, c}, {});
    map(MapOp::add, cell, std::array{cell, product}, {});
    map(MapOp::tanh, product, std::array{cell}, {});
    h = part(layer.hidden, t, 0, H), c = cell;
    map(MapOp::mul, h, std::array{o, product}, {});
  }
}

}  // namespace polyphase
