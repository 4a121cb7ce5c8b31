// residual_unit() of ops/conv.hpp.

#include <array>
#include <optional>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "conv/algorithm.hpp"
#include "conv/residual_unit.hpp"
#include "device/backend.hpp"
#include "ops/activations.hpp"
#include "ops/conv.hpp"
#include "ops/conv/input.hpp"
#include "ops/conv/problem.hpp"
#include "ops/conv/unit.hpp"
#include "ops/dispatch.hpp"
#include "ops/mac_counter.hpp"
#include "tensor/error.hpp"

namespace polyphase {
namespace {

constexpr const char* kName = "residual_unit";

// Whether the first convolution has a group for each channel.
bool is_depthwise(const UnitConv1d& conv) {
  return conv.weight.rank() == 3 && conv.weight.size(0) > 1 && conv.weight.size(1) == 1;
}

// The same padding at both ends.
Conv1dOptions options_of(const UnitConv1d& conv) {
  ops::require_defined(kName, "weight", conv.weight);
  const std::int64_t K = conv.weight.rank() == 3 ? conv.weight.size(2) : 1, extent = conv.dilation * (K - 1);
  require<ShapeError>(extent % 2 == 0, kName, ": expected an even dilation*(K - 1), got ", conv.dilation, "*", K - 1);
  return {.padding = extent / 2, .dilation = conv.dilation, .groups = is_depthwise(conv) ? conv.weight.size(0) : 1};
}

void check(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second) {
  ops::require_defined(kName, "x", x);
  for (const UnitConv1d* conv : {&first, &second}) {
    static_cast<void>(options_of(*conv));
    ops::check_input(kName, conv->input);
  }
  require<ShapeError>(first.weight.rank() == 3 && (first.weight.size(0) == first.weight.size(1) || is_depthwise(first)) &&
                          second.weight.shape() == Shape{first.weight.size(0), first.weight.size(0), second.weight.size(-1)},
                      kName, ": expected weights (C, C, K), or (C, 1, K) and (C, C, K), got ", first.weight.shape(), " and ",
                      second.weight.shape());
}

// More kernels apply a LeakyReLU as they store, and Snake as they read in 16 bits, but depthwise ones as they store. A Snake
// that no kernel applies needs no other tensor after the first convolution.
Tensor in_steps(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second, double scale) {
  const ConvInputOptions& between = second.input;
  const bool is_read = between.activation == Activation::snake && size_of(x.dtype()) == 2 && !is_depthwise(first);
  const ConvOutputOptions output =
      is_read ? ConvOutputOptions{} : ConvOutputOptions{between.activation, between.slope, between.alpha, between.beta};
  const Tensor middle = conv1d(x, first.weight, first.bias, options_of(first), output, first.input);
  return conv1d(middle, second.weight, second.bias, options_of(second), {.residual = x, .scale = scale},
                is_read ? between : ConvInputOptions{});
}

// The average for a device; nothing if devices do not compute it with a unit.
std::optional<UnitAverageTensors> tensors_of(const AverageWith& average, const Tensor& x) {
  if (!average.other.defined()) return UnitAverageTensors{};
  const bool is_leaky = average.activation == Activation::leaky_relu;
  if (!is_leaky && average.activation != Activation::none) return std::nullopt;
  if (average.other.shape() != x.shape() || average.other.dtype() != x.dtype() || average.other.device() != x.device())
    return std::nullopt;
  return UnitAverageTensors{average.other.detach().contiguous(), average.divisor, is_leaky ? average.slope : 1};
}

}  // namespace

Tensor ops::unit_in_one_kernel(const Tensor& x, const std::array<UnitConv1d, 2>& convs, double scale,
                               const AverageWith& average, bool replaces_other) {
  const Precision precision = current_precision();
  if (x.dtype() == DType::f64 || (x.dtype() == DType::f32 && precision == Precision::ieee)) return {};
  const bool is_snake = convs[0].input.activation == Activation::snake;
  if (is_snake != (convs[1].input.activation == Activation::snake)) return {};
  const std::array inputs{x,
                          convs[0].weight,
                          convs[0].bias,
                          convs[0].input.alpha,
                          convs[0].input.beta,
                          convs[1].weight,
                          convs[1].bias,
                          convs[1].input.alpha,
                          convs[1].input.beta,
                          average.other};
  if (x.rank() != 3 || x.numel() == 0 || autocast_dtype() || current_algorithm() != Algorithm::automatic ||
      autograd::should_record(inputs))
    return {};
  ResidualUnit unit{.N = x.size(0),
                    .C = x.size(1),
                    .L = x.size(2),
                    .is_depthwise = is_depthwise(convs[0]),
                    .is_snake = is_snake,
                    .scale = scale,
                    .dtype = x.dtype(),
                    .precision = precision};
  const std::optional<UnitAverageTensors> follows = tensors_of(average, x);
  if (!follows) return {};
  std::array<UnitConvTensors, 2> tensors;
  double operations = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    unit.K[i] = convs[i].weight.size(2), unit.D[i] = convs[i].dilation;
    UnitConvTensors& own = tensors[i];
    own.weight = convs[i].weight.detach().contiguous();
    if (convs[i].bias.defined()) own.bias = convs[i].bias.detach().contiguous();
    operations += ops::conv1d_problem(x, own.weight, own.bias, options_of(convs[i])).operations();
    if (!ops::fits(convs[i].input, x)) return {};
    const ConvPrologue prologue = ops::prologue_of(convs[i].input);
    unit.slope[i] = prologue.is_needed() ? prologue.slope : 1;
    own.alpha = prologue.alpha, own.beta = prologue.beta;
  }
  const Tensor source = x.detach().contiguous();
  const Tensor out = replaces_other ? average.other : Tensor::empty(x.shape(), {x.dtype(), x.device()});
  if (!backend_of(x.device()).residual_unit(unit, source, tensors, *follows, out)) return {};
  if (replaces_other) out.storage().bump_version();
  ops::MacCounter::add(operations / 2);
  return out;
}

namespace {

// The unit of checked arguments.
Tensor computed(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second, double scale) {
  const Tensor y = ops::unit_in_one_kernel(x, {first, second}, scale, {});
  return y.defined() ? y : in_steps(x, first, second, scale);
}

}  // namespace

Tensor residual_unit(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second, double scale) {
  check(x, first, second);
  return computed(x, first, second, scale);
}

Tensor residual_unit(const Tensor& x, const UnitConv1d& first, const UnitConv1d& second, double scale,
                     const AverageWith& average) {
  check(x, first, second);
  ops::require_defined(kName, "average.other", average.other);
  if (const Tensor y = ops::unit_in_one_kernel(x, {first, second}, scale, average); y.defined()) return y;
  const Tensor y = computed(x, first, second, scale);
  return average_of(std::array{average.other, y}, average.divisor, average.activation, average.slope);
}

}  // namespace polyphase
