#include "layers/fused.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "autograd/no_grad.hpp"
#include "layers/activations.hpp"
#include "layers/containers/branches.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/containers/sum_of_branches.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/norm.hpp"
#include "ops/conv/unit.hpp"
#include "ops/elementwise.hpp"
#include "tensor/error.hpp"

namespace polyphase::layers {
namespace {

/// `module` as a T; null if its type is not exactly T.
template <class T, class M>
auto* exactly(M& module) {
  using Exact = std::conditional_t<std::is_const_v<M>, const T, T>;
  return typeid(module) == typeid(T) ? static_cast<Exact*>(&module) : nullptr;
}

ConvOutputOptions output_options_of(const Module& module) {
  if (const auto* leaky = exactly<LeakyReLU>(module))
    return {.activation = Activation::leaky_relu, .slope = leaky->negative_slope()};
  if (exactly<ReLU>(module) != nullptr) return {.activation = Activation::relu};
  if (exactly<Tanh>(module) != nullptr) return {.activation = Activation::tanh};
  if (const auto* snake = exactly<Snake>(module)) return snake->output_options();
  if (const auto* snake = exactly<SnakeBeta>(module)) return snake->output_options();
  return {};
}

bool is_convolution(const Module& module) {
  return exactly<Conv1d>(module) != nullptr || exactly<ConvTranspose1d>(module) != nullptr;
}

bool is_sum_of_branches(const Module& module) {
  return exactly<MeanOfBranches>(module) != nullptr || exactly<SumOfBranches>(module) != nullptr;
}

bool is_snake(const Module& module) { return exactly<Snake>(module) != nullptr || exactly<SnakeBeta>(module) != nullptr; }

bool is_fusable(const Module& module) {
  return exactly<ReLU>(module) != nullptr || exactly<LeakyReLU>(module) != nullptr || exactly<Tanh>(module) != nullptr ||
         is_snake(module);
}

/// Whether no number that a convolution reads is read for many of its output channels.
bool reads_for_few(const Module& module) {
  const auto* conv = exactly<Conv1d>(module);
  return conv != nullptr && conv->options().out_channels / conv->options().groups <= 2;
}

/// Whether `module` and the convolution behind it are in one pass: an activation that a convolution applies to what it reads.
/// With recording it is an operation of its own, which keeps its result for the backward pass. Snake only where few
/// output channels read a number.
bool is_read_by(const Module& module, const Module& next) {
  if (grad_enabled()) return false;
  if (is_snake(module)) return reads_for_few(next);
  const bool is_active = exactly<ReLU>(module) != nullptr || exactly<LeakyReLU>(module) != nullptr;
  return is_active && is_convolution(next);
}
/// How many modules of the pass from `first` on are before the convolution that reads through them: 0 or 1.
std::size_t count_before(Modules modules, std::size_t first) {
  return first + 1 < modules.size() && is_read_by(*modules[first], *modules[first + 1]) ? 1 : 0;
}

/// Whether a sum of branches applies the activation in its pass: its derivative follows from the result.
bool is_fusable_with_sum(const Module& module) {
  const auto* leaky = exactly<LeakyReLU>(module);
  return leaky != nullptr ? leaky->negative_slope() >= 0 : exactly<ReLU>(module) != nullptr;
}

/// The sum or mean of branches with an activation; undefined if `module` is neither.
Tensor run_branches(Module& module, Tensor&& x, const ConvOutputOptions& output) {
  if (auto* mean = exactly<MeanOfBranches>(module))
    return forward_branches(MeanOfBranches::kName, mean->modules(), std::move(x), BranchSum::mean, output);
  if (auto* total = exactly<SumOfBranches>(module))
    return forward_branches(SumOfBranches::kName, total->modules(), std::move(x), BranchSum::plain, output);
  return {};
}

void require_kept(const Tensor& y, const Tensor& residual) {
  require<ShapeError>(y.shape() == residual.shape(), "Residual: expected its modules to keep the shape ", residual.shape(),
                      ", got ", y.shape());
}

/// What a pass computed.
struct Ran {
  Tensor y;
  bool has_added = false;
};
/// The pass of `length` modules from `first` on. It adds to `residual` if that is defined and the pass can.
Ran run_pass(Modules modules, std::size_t first, std::size_t length, Tensor x, const Tensor& residual, double scale) {
  const std::size_t before = count_before(modules, first);
  Module& module = *modules[first + before];
  const bool adds = residual.defined() && is_convolution(module);
  if (length == 1 && !adds) return {forward_one(module, std::move(x))};
  ConvOutputOptions output = length == before + 2 ? output_options_of(*modules[first + before + 1]) : ConvOutputOptions{};
  if (is_sum_of_branches(module)) return {run_branches(module, std::move(x), output)};
  if (adds) output.residual = residual, output.scale = scale;
  ConvInputOptions input;
  if (before == 1) {
    const ConvOutputOptions read = output_options_of(*modules[first]);
    input = {read.activation, read.slope, read.alpha, read.beta};
  }
  if (const auto* conv = exactly<Conv1d>(module)) return {conv->forward_activated(x, output, input), adds};
  return {exactly<ConvTranspose1d>(module)->forward_activated(x, output, input), adds};
}

/// The channels of a convolution that may be the first or second of residual_unit(), reading what `before` makes; 0 if it may
/// not.
std::int64_t unit_channels(const Module& before, const Module& module, bool is_first) {
  const auto* conv = exactly<Conv1d>(module);
  if (conv == nullptr || grad_enabled() || !(is_snake(before) || is_read_by(before, module))) return 0;
  const Conv1d::Options& options = conv->options();
  const std::int64_t extent = options.dilation * (options.kernel_size - 1);
  const bool is_centred = extent % 2 == 0 && (options.padding.is_same || options.padding == Padding(extent / 2));
  const bool is_depthwise = is_first && options.groups == options.in_channels;
  const bool is_plain =
      options.stride == 1 && (options.groups == 1 || is_depthwise) && options.padding_mode == PaddingMode::zeros;
  return is_centred && is_plain && options.in_channels == options.out_channels ? options.in_channels : 0;
}

/// Whether residual_unit() computes the modules of a Residual: activation, convolution, twice.
bool is_unit(Modules modules) {
  if (modules.size() != 4) return false;
  const auto is_half = [&](std::size_t i) { return unit_channels(*modules[i], *modules[i + 1], i == 0); };
  return is_half(0) > 0 && is_half(0) == is_half(2) && is_snake(*modules[0]) == is_snake(*modules[2]);
}

/// The convolution as one of residual_unit(), reading what `before` makes.
UnitConv1d unit_conv_of(const Module& before, const Module& module) {
  const auto* conv = exactly<Conv1d>(module);
  const ConvOutputOptions read = output_options_of(before);
  return {conv->weight(), conv->bias(), conv->options().dilation, {read.activation, read.slope, read.alpha, read.beta}};
}

/// `module` as a Residual that residual_unit() computes; null if it is none.
Residual* unit_of(Module& module) {
  auto* residual = exactly<Residual>(module);
  return residual != nullptr && is_unit(residual->block().modules()) ? residual : nullptr;
}

/// Convolution i of the modules of a unit.
UnitConv1d unit_conv_of(Modules modules, std::size_t i) { return unit_conv_of(*modules[2 * i], *modules[2 * i + 1]); }

/// residual + scale*(all modules applied to x).
Tensor forward_added(Modules modules, Tensor x, const Tensor& residual, double scale) {
  Ran pass{std::move(x)};
  for (std::size_t i = 0, length = 0; i < modules.size(); i += length) {
    length = pass_length(modules, i);
    const bool is_last = i + length == modules.size();
    const auto* inner = exactly<Sequential>(*modules[i]);
    if (is_last && inner != nullptr) return forward_added(inner->modules(), std::move(pass.y), residual, scale);
    pass = run_pass(modules, i, length, std::move(pass.y), is_last ? residual : Tensor(), scale);
  }
  if (pass.has_added) return pass.y;
  require_kept(pass.y, residual);
  return add_scaled(residual, pass.y, scale);
}

}  // namespace

std::size_t pass_length(Modules modules, std::size_t first) {
  const std::size_t before = count_before(modules, first);
  if (modules.size() - first < before + 2) return before + 1;
  const Module &module = *modules[first + before], &next = *modules[first + before + 1];
  const bool is_pair =
      (is_convolution(module) && is_fusable(next)) || (is_sum_of_branches(module) && is_fusable_with_sum(next));
  return before + (is_pair ? 2 : 1);
}

std::vector<Pass> passes_of(Modules modules, bool is_residual) {
  const NoGradGuard no_grad;
  if (is_residual && is_unit(modules)) return {{.first = 0, .length = 4, .main = 1, .adds_residual = true, .is_unit = true}};
  std::vector<Pass> passes;
  for (std::size_t i = 0; i < modules.size(); i += passes.back().length) {
    const std::size_t length = pass_length(modules, i);
    const std::size_t main = i + count_before(modules, i);
    const bool is_last = i + length == modules.size();
    const bool adds = is_residual && is_last && (is_convolution(*modules[main]) || scaled_block(modules).scale != nullptr);
    passes.push_back({.first = i, .length = length, .main = main, .adds_residual = adds});
  }
  return passes;
}

Tensor forward_all(Modules modules, Tensor x) {
  Tensor y = std::move(x);
  for (std::size_t i = 0, length = 0; i < modules.size(); i += length) {
    length = pass_length(modules, i);
    y = run_pass(modules, i, length, std::move(y), {}, 1).y;
  }
  return y;
}

Tensor forward_one(Module& module, Tensor x) {
  if (const auto* inner = exactly<Sequential>(module)) return forward_all(inner->modules(), std::move(x));
  if (auto* residual = exactly<Residual>(module))
    return forward_residual(residual->block().modules(), std::move(x), residual->scale());
  if (is_sum_of_branches(module)) return run_branches(module, std::move(x), {});
  return module.forward(x);
}

ScaledBlock scaled_block(Modules modules) {
  const auto* last = modules.empty() ? nullptr : modules.back().get();
  if (last == nullptr) return {};
  const Modules before = modules.first(modules.size() - 1);
  if (const auto* scale = exactly<LayerScale>(*last)) return {{before.begin(), before.end()}, scale};
  const auto* inner = exactly<ChannelsLast>(*last);
  const auto* scale = inner != nullptr && inner->size() > 0 ? exactly<LayerScale>((*inner)[inner->size() - 1]) : nullptr;
  if (scale == nullptr || scale->options().dim != -1) return {};
  ScaledBlock block{{before.begin(), before.end()}, scale, true};
  auto unscaled = std::make_shared<ChannelsLast>();
  for (std::size_t i = 0; i + 1 < inner->size(); ++i) unscaled->push_back(inner->modules()[i]);
  if (unscaled->size() > 0) block.before.push_back(std::move(unscaled));
  return block;
}

Tensor ScaledBlock::add(const Tensor& residual, const Tensor& y, double factor) const {
  require_kept(y, residual);
  // (N, ..., C, L) is (N, L, ..., C) to the layer, but (N, L) is itself.
  const Tensor gamma = scale->gamma_for(y, in_channels_last && y.rank() > 2 ? -2 : scale->options().dim);
  return addcmul(residual, y, factor == 1 ? gamma : mul(gamma, factor));
}

Tensor forward_residual(Modules modules, Tensor x, double scale) {
  const Tensor residual = std::move(x);
  if (is_unit(modules)) return residual_unit(residual, unit_conv_of(modules, 0), unit_conv_of(modules, 1), scale);
  if (const ScaledBlock block = scaled_block(modules); block.scale != nullptr)
    return block.add(residual, forward_all(block.before, residual), scale);
  return forward_added(modules, residual, residual, scale);
}

const Module* adding_convolution(Module& branch) {
  if (const auto* inner = exactly<Sequential>(branch))
    return inner->modules().empty() ? nullptr : adding_convolution(*inner->modules().back());
  Residual* const unit = unit_of(branch);
  return unit != nullptr ? unit->block().modules()[3].get() : nullptr;
}

bool is_of_units(Module& module) {
  if (const auto* inner = exactly<Sequential>(module)) {
    const Modules modules = inner->modules();
    return std::all_of(modules.begin(), modules.end(), [](const auto& one) { return is_of_units(*one); });
  }
  return unit_of(module) != nullptr;
}

Averaged forward_averaged(Module& module, Tensor x, const AverageWith& average, bool replaces_other) {
  if (const auto* inner = exactly<Sequential>(module)) {
    const Modules modules = inner->modules();
    for (std::size_t i = 0, length = 0; i < modules.size(); i += length) {
      length = pass_length(modules, i);
      if (i + 1 == modules.size()) return forward_averaged(*modules[i], std::move(x), average, replaces_other);
      x = run_pass(modules, i, length, std::move(x), {}, 1).y;
    }
    return {std::move(x)};
  }
  if (Residual* const unit = unit_of(module)) {
    const Modules modules = unit->block().modules();
    const std::array convs{unit_conv_of(modules, 0), unit_conv_of(modules, 1)};
    Tensor y = ops::unit_in_one_kernel(x, convs, unit->scale(), average, replaces_other);
    if (y.defined()) return {std::move(y), true};
  }
  return {forward_one(module, std::move(x))};
}

}  // namespace polyphase::layers
