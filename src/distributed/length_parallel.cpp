#include "distributed/length_parallel.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "ops/length.hpp"

namespace polyphase::distributed {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

void check(const char* name, const Tensor& x, const Tensor& weight) {
  require<ShapeError>(x.rank() == 3, name, ": expected x (N, C_in, L), got ", x.shape());
  require<ShapeError>(weight.rank() == 3, name, ": expected a weight of rank 3, got ", weight.shape());
}

// `y`, which was computed from a detached copy of x: its gradient goes on to y's weights, and to x by `input_gradient`.
Tensor with_input_gradient(const char* name, const Tensor& y, const Tensor& x,
                           std::function<Tensor(const Tensor& gradient)> input_gradient) {
  // A handle of its own on y's elements.
  const Tensor output = y.detach();
  return autograd::record(name, output, {y, x},
                          [input_gradient = std::move(input_gradient)](const Tensor& g, autograd::Needs needs) {
                            // The exchange takes part on all ranks, or on none: the graph is the same.
                            return autograd::Gradients{needs[0] ? g : Tensor(), needs[1] ? input_gradient(g) : Tensor()};
                          });
}

}  // namespace

Tensor with_halo(const Tensor& x, std::int64_t left, std::int64_t right, Group& group) {
  const NoGradGuard no_grad;
  const std::int64_t length = x.size(2), world = group.world(), rank = group.rank();
  require<ShapeError>(left >= 0 && right >= 0 && length >= left && length >= right, "with_halo: expected pieces of at least ",
                      std::max(left, right), " samples, got ", length);
  const auto zeros = [&](std::int64_t size) {
    return Tensor::zeros({x.size(0), x.size(1), size}, {.dtype = x.dtype(), .device = x.device()});
  };
  if (world == 1) return cat({zeros(left), x.detach(), zeros(right)}, 2);
  // Row r: the first `right` samples of rank r's piece, which rank r - 1 needs, and the last `left` ones, for rank r + 1.
  const Tensor rows = Tensor::empty({world, x.size(0), x.size(1), right + left}, {.dtype = x.dtype(), .device = x.device()});
  Tensor own = rows.select(0, rank);
  own.narrow(2, 0, right).copy_(x.detach().narrow(2, 0, right));
  own.narrow(2, right, left).copy_(x.detach().narrow(2, length - left, left));
  if (rows.numel() > 0) group.communicator().all_gather(rows, "halo").wait();
  const Tensor before = rank > 0 ? rows.select(0, rank - 1).narrow(2, right, left) : zeros(left);
  const Tensor behind = rank + 1 < world ? rows.select(0, rank + 1).narrow(2, 0, right) : zeros(right);
  return cat({before, x.detach(), behind}, 2);
}

Tensor conv1d_split(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options, Group& group) {
  static constexpr const char* kName = "conv1d_split";
  check(kName, x, weight);
  const std::int64_t reach = options.dilation * (weight.size(2) - 1),
                     left = options.padding.is_same ? reach / 2 : options.padding.left;
  const std::int64_t right = options.padding.is_same ? reach - left : options.padding.right;
  require<ShapeError>(options.stride == 1 && options.padding_mode == PaddingMode::zeros && left + right == reach, kName,
                      ": expected stride 1 and zeros as padding, P_l + P_r = D*(K - 1) = ", reach, ", got stride ",
                      options.stride, " and padding ", left, " + ", right);
  const Tensor y =
      conv1d(with_halo(x, left, right, group), weight, bias, {.dilation = options.dilation, .groups = options.groups});
  return with_input_gradient(kName, y, x, [=, w = weight.detach()](const Tensor& g) {
    Group ranks = group;
    return conv_transpose1d(with_halo(g, right, left, ranks), w, {},
                            {.padding = {reach, reach}, .dilation = options.dilation, .groups = options.groups});
  });
}

Tensor conv_transpose1d_split(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTranspose1dOptions& options,
                              Group& group) {
  static constexpr const char* kName = "conv_transpose1d_split";
  check(kName, x, weight);
  const auto [left, right, is_same] = options.padding;
  const std::int64_t reach = options.dilation * (weight.size(2) - 1), stride = options.stride;
  require<ShapeError>(!is_same && left + right == reach + 1 - stride && options.output_padding == 0 && !options.output_size,
                      kName, ": expected P_l + P_r = D*(K - 1) + 1 - S = ", reach + 1 - stride,
                      " and no output padding, got padding ", left, " + ", right, " and output padding ",
                      options.output_padding);
  // Output t of this piece is a sum over inputs i with i*S + k*D = t + P_l.
  const std::int64_t before = std::max<std::int64_t>(floor_div(reach - left, stride), 0);
  const std::int64_t behind = floor_div(left + stride - 1, stride);
  const Tensor wide = conv_transpose1d(with_halo(x, before, behind, group), weight, bias,
                                       {.stride = stride, .dilation = options.dilation, .groups = options.groups});
  const Tensor y = wide.narrow(2, before * stride + left, x.size(2) * stride);
  return with_input_gradient(kName, y, x,
                             [=, padding_left = left, padding_right = right, w = weight.detach()](const Tensor& g) {
                               Group ranks = group;
                               return conv1d(with_halo(g, padding_left, padding_right, ranks), w, {},
                                             {.stride = stride, .dilation = options.dilation, .groups = options.groups});
                             });
}

}  // namespace polyphase::distributed
