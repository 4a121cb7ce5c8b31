#include "ops/length.hpp"

#include <algorithm>
#include <optional>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::Needs;
using autograd::record;
using autograd::save_if;

namespace {

constexpr std::size_t kMaxInputs = 64;  // per node of the tape

// Floating-point tensors of several dtypes after a guard's conversion.
std::optional<std::vector<Tensor>> widened(const std::vector<Tensor>& tensors) {
  const auto differs = [&](const Tensor& tensor) { return autograd::promotes(tensors.front(), tensor); };
  if (std::none_of(tensors.begin(), tensors.end(), differs)) return std::nullopt;
  const auto is_double = [](const Tensor& tensor) { return tensor.dtype() == DType::f64; };
  const DType widest = std::any_of(tensors.begin(), tensors.end(), is_double) ? DType::f64 : DType::f32;
  std::vector<Tensor> result;
  for (const Tensor& tensor : tensors) result.push_back(is_floating_point(tensor.dtype()) ? tensor.to(widest) : tensor);
  return result;
}

Shape with_last(Shape shape, std::int64_t length) {
  shape[shape.rank() - 1] = length;
  return shape;
}

// The length of x times `scale`, if it fits in 64 bits.
std::int64_t upsampled_length(const Tensor& x, std::int64_t scale) {
  std::int64_t length = 0;
  require<ShapeError>(!__builtin_mul_overflow(x.size(-1), scale, &length), "upsample1d: the length of ", x.shape(), " times ",
                      scale, " does not fit 64 bits");
  return length;
}

// The length of x with `padding`, if it fits in 64 bits.
std::int64_t padded_length(const Tensor& x, Padding padding) {
  std::int64_t length = 0;
  const bool fits =
      !__builtin_add_overflow(x.size(-1), padding.left, &length) && !__builtin_add_overflow(length, padding.right, &length);
  require<ShapeError>(fits, "pad1d: the length of ", x.shape(), " padded by (", padding.left, ", ", padding.right,
                      ") does not fit 64 bits");
  return length;
}

std::int64_t rows_of(const Shape& shape) { return with_last(shape, 1).numel(); }

Tensor rows_view(const Tensor& x) { return ops::reshaped_view(x, {rows_of(x.shape()), x.size(-1)}); }

Tensor padded(const Tensor& x, Padding padding, PaddingMode mode) {
  const Tensor out = Tensor::empty(with_last(x.shape(), padded_length(x, padding)), {x.dtype(), x.device()});
  if (out.numel() > 0) backend_of(x.device()).pad(rows_view(out), rows_view(x.detach().contiguous()), padding.left, mode);
  return record("pad1d", out, {x}, [left = padding.left, mode, x_shape = x.shape()](const Tensor& g, Needs) {
    if (mode == PaddingMode::zeros) return Gradients{g.narrow(-1, left, x_shape[x_shape.rank() - 1])};
    const Tensor gradient = Tensor::empty(x_shape, {g.dtype(), g.device()});
    if (g.numel() > 0) backend_of(g.device()).pad_backward(rows_view(gradient), rows_view(g.contiguous()), left, mode);
    return Gradients{gradient};
  });
}

Tensor upsample_linear(const Tensor& x, std::int64_t scale) {
  const Tensor out = Tensor::empty(with_last(x.shape(), upsampled_length(x, scale)), {x.dtype(), x.device()});
  if (out.numel() > 0) backend_of(x.device()).upsample_linear(rows_view(out), rows_view(x.detach().contiguous()), scale);
  return record("upsample1d", out, {x}, [scale, x_shape = x.shape()](const Tensor& g, Needs) {
    const Tensor gradient = Tensor::empty(x_shape, {g.dtype(), g.device()});
    if (g.numel() > 0) backend_of(g.device()).upsample_linear_backward(rows_view(gradient), rows_view(g.contiguous()), scale);
    return Gradients{gradient};
  });
}

}  // namespace

Tensor pad1d(const Tensor& x, Padding padding, PaddingMode mode) {
  require<ShapeError>(x.rank() >= 1, "pad1d: expected x (..., L), got ", x.shape());
  require<ShapeError>(!padding.is_same, "pad1d: expected a padding in numbers, got same");
  const std::int64_t left = padding.left;
  const std::int64_t right = padding.right;
  const std::int64_t length = x.size(-1);
  require<ShapeError>(left >= 0 && right >= 0, "pad1d: expected padding >= 0, got (", left, ", ", right, ")");
  if (left == 0 && right == 0) return x;
  if (mode == PaddingMode::replicate) require<ShapeError>(length >= 1, "pad1d: expected L >= 1 to replicate, got ", x.shape());
  if (mode == PaddingMode::reflect)
    require<ShapeError>(left < length && right < length, "pad1d: expected a reflect padding below L=", length, ", got (", left,
                        ", ", right, ")");
  return padded(x, padding, mode);
}

Tensor upsample1d(const Tensor& x, std::int64_t scale, UpsampleMode mode) {
  require<ShapeError>(x.rank() >= 1, "upsample1d: expected x (..., L), got ", x.shape());
  require<ShapeError>(scale >= 1, "upsample1d: expected scale >= 1, got ", scale);
  if (scale == 1) return x;
  if (mode == UpsampleMode::linear) {
    ops::require_floating("upsample1d", x);
    return upsample_linear(x, scale);
  }
  const Shape shape = with_last(x.shape(), upsampled_length(x, scale));
  Shape repeated = x.shape();
  repeated.push_back(scale);
  return x.unsqueeze(-1).expand(repeated).reshape(shape);
}

Tensor pixel_shuffle1d(const Tensor& x, std::int64_t upscale_factor) {
  const std::int64_t r = upscale_factor;
  require<ShapeError>(r >= 1, "pixel_shuffle1d: expected upscale_factor >= 1, got ", r);
  require<ShapeError>(x.rank() == 3 && x.size(1) % r == 0, "pixel_shuffle1d: expected x (N, C*", r, ", L), got ", x.shape());
  const std::int64_t channels = x.size(1) / r;
  return x.reshape({x.size(0), channels, r, x.size(2)}).transpose(2, 3).reshape({x.size(0), channels, x.size(2) * r});
}

Tensor avg_pool1d(const Tensor& x, const AvgPool1dOptions& options) {
  const std::int64_t size = options.kernel_size, step = options.stride == 0 ? size : options.stride, padding = options.padding;
  require<ShapeError>(size >= 1 && step >= 1, "avg_pool1d: expected kernel_size >= 1 and stride >= 1, got ", size, " and ",
                      step);
  require<ShapeError>(padding >= 0 && padding <= size / 2, "avg_pool1d: expected padding in [0, kernel_size/2=", size / 2,
                      "], got ", padding);
  require<ShapeError>(x.rank() >= 1 && x.size(-1) + 2 * padding >= size,
                      "avg_pool1d: expected x (..., L >= ", size - 2 * padding, "), got ", x.shape());
  ops::require_floating("avg_pool1d", x);
  const auto windows = [&](const Tensor& of) { return pad1d(of, padding).unfold(size, step); };
  if (options.count_include_pad || padding == 0) return mean(windows(x), {-1});
  const Tensor counts = sum(windows(Tensor::ones({x.size(-1)}, {x.dtype(), x.device()})), {-1});
  return sum(windows(x), {-1}) / counts;
}

Tensor index_select(const Tensor& x, const Tensor& index) {
  require<ShapeError>(x.rank() >= 1, "index_select: expected x (..., L), got ", x.shape());
  require<DTypeError>(index.dtype() == DType::i64, "index_select: expected an index of i64, got ", index.dtype());
  require<DeviceError>(index.device() == x.device(), "index_select: expected x and index on one device, got ", x.device(),
                       " and ", index.device());
  require<ShapeError>(index.rank() == 1, "index_select: expected index (J), got ", index.shape());
  const Tensor positions = index.contiguous();
  backend_of(x.device()).check_index(positions, x.size(-1));
  const std::int64_t rows = rows_of(x.shape());
  const std::int64_t length = x.size(-1);
  const std::int64_t count = positions.size(0);
  const Shape shape = with_last(x.shape(), count);
  const Tensor out = Tensor::empty(shape, {x.dtype(), x.device()});
  if (out.numel() > 0)
    backend_of(x.device())
        .gather(ops::reshaped_view(out, {rows, count}), ops::reshaped_view(x.detach().contiguous(), {rows, length}), positions);
  return record(
      "index_select", out, {x},
      [at = save_if(follows_gradients(x), positions), rows, length, count, x_shape = x.shape()](const Tensor& g, Needs) {
        const Tensor gradient = Tensor::zeros(x_shape, {g.dtype(), g.device()});
        if (g.numel() > 0)
          backend_of(g.device())
              .scatter_add(ops::reshaped_view(gradient, {rows, length}), ops::reshaped_view(g.contiguous(), {rows, count}),
                           at.get());
        return Gradients{gradient};
      });
}

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  require<ShapeError>(!tensors.empty(), "cat: expected at least one tensor, got none");
  if (const auto widest = widened(tensors)) return cat(*widest, dim);
  ops::require_alike("cat", tensors);
  const Tensor& first = tensors.front();
  const int d = normalize_dim("cat", dim, first.rank());
  if (tensors.size() > kMaxInputs) {
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < tensors.size(); i += kMaxInputs) {
      const auto begin = tensors.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(kMaxInputs, tensors.size() - i));
      parts.push_back(cat({begin, end}, d));
    }
    return cat(parts, d);
  }
  Shape shape = first.shape();
  shape[d] = 0;
  std::vector<std::int64_t> lengths;
  for (const Tensor& tensor : tensors) {
    Shape expected = first.shape();
    if (tensor.rank() == first.rank()) expected[d] = tensor.size(d);
    require<ShapeError>(tensor.shape() == expected, "cat: expected shapes that agree but for dimension ", d, ", got ",
                        first.shape(), " and ", tensor.shape());
    lengths.push_back(tensor.size(d));
    require<ShapeError>(!__builtin_add_overflow(shape[d], lengths.back(), &shape[d]), "cat: the size of dimension ", d,
                        " of all ", tensors.size(), " tensors does not fit 64 bits");
  }
  const Tensor out = Tensor::empty(shape, {first.dtype(), first.device()});
  std::int64_t start = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.numel() > 0) backend_of(out.device()).copy(out.narrow(d, start, tensor.size(d)), tensor);
    start += tensor.size(d);
  }
  return record("cat", out, tensors, [d, lengths](const Tensor& g, Needs needs) {
    Gradients gradients(lengths.size());
    std::int64_t position = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (needs[static_cast<int>(i)]) gradients[i] = g.narrow(d, position, lengths[i]);
      position += lengths[i];
    }
    return gradients;
  });
}

Tensor stack(const std::vector<Tensor>& tensors, int dim) {
  require<ShapeError>(!tensors.empty(), "stack: expected at least one tensor, got none");
  const int d = normalize_dim("stack", dim, tensors.front().rank() + 1);
  std::vector<Tensor> rows;
  for (const Tensor& tensor : tensors) {
    require<ShapeError>(tensor.shape() == tensors.front().shape(), "stack: expected equal shapes, got ",
                        tensors.front().shape(), " and ", tensor.shape());
    rows.push_back(tensor.unsqueeze(d));
  }
  return cat(rows, d);
}

}  // namespace polyphase
