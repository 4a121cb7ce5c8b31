#include "ops/conv.hpp"

#include <array>
#include <optional>
#include <ostream>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "conv/algorithm.hpp"
#include "ops/activations.hpp"
#include "ops/conv/input.hpp"
#include "ops/conv/problem.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/length.hpp"
#include "ops/mac_counter.hpp"

namespace polyphase {

using autograd::Derivative;
using autograd::follows_gradients;
using autograd::Gradients;
using autograd::lowered;
using autograd::Needs;
using autograd::Onward;
using autograd::save_if;
using autograd::Saved;

namespace {

// One of the problem's directions with the requested algorithm and precision. Shared by both layers: forward and dgrad are
// exchanged (conv/problem.hpp).
struct Convolution {
  const char* name;
  ConvProblem problem;
  bool transposed;
  Algorithm algorithm = current_algorithm();
  Precision precision = current_precision();

  void require_algorithm(Device device, ConvDirection direction) const {
    if (algorithm == Algorithm::automatic) return;
    const auto reason = backend_of(device).can_implement(problem, direction, algorithm, precision);
    if (reason)
      throw NotImplemented(concat(name, ": algorithm ", algorithm, " cannot compute the ", direction, " of ", problem, ": ",
                                  *reason, "; automatic can"));
  }

  // y (N, C_out, L_out) from x, or x (N, C_in, L_in) from y
  [[nodiscard]] Tensor gather(ConvDirection direction, const Tensor& source, const Tensor& w, const Tensor& bias = {},
                              const ConvEpilogue& epilogue = {}, const ConvPrologue& prologue = {}) const {
    require_algorithm(source.device(), direction);
    const bool is_forward = direction == ConvDirection::forward;
    const Tensor out = Tensor::empty(result_shape(direction), {source.dtype(), source.device()});
    if (out.numel() == 0) return out;
    ops::MacCounter::add(problem.operations() / 2);
    Backend& backend = backend_of(source.device());
    if (epilogue.is_needed() || prologue.is_needed()) {
      backend.conv_activated(problem, direction, source.contiguous(), w.contiguous(), dense(bias), out, prologue, epilogue,
                             algorithm, precision);
    } else if (is_forward) {
      backend.conv_forward(problem, source.contiguous(), w.contiguous(), dense(bias), out, algorithm, precision);
    } else {
      backend.conv_dgrad(problem, source.contiguous(), w.contiguous(), dense(bias), out, algorithm, precision);
    }
    return out;
  }

  // w (C_in, C_out/G, K) from x and y
  [[nodiscard]] Tensor wgrad(const Tensor& x, const Tensor& y) const {
    require_algorithm(x.device(), ConvDirection::wgrad);
    const Tensor w = Tensor::empty({problem.C_in, problem.channels_out_per_group(), problem.K}, {x.dtype(), x.device()});
    if (problem.N == 0) {
      backend_of(x.device()).fill(w, 0);
    } else {
      backend_of(x.device()).conv_wgrad(problem, x.contiguous(), y.contiguous(), w, algorithm, precision);
    }
    return w;
  }

  [[nodiscard]] Shape result_shape(ConvDirection direction) const {
    if (direction == ConvDirection::forward) return {problem.N, problem.C_out, problem.L_out};
    return {problem.N, problem.C_in, problem.L_in};
  }
  [[nodiscard]] ConvDirection output_direction() const { return transposed ? ConvDirection::forward : ConvDirection::dgrad; }
  [[nodiscard]] Tensor output(const Tensor& input, const Tensor& w, const Tensor& bias, const ConvPrologue& prologue,
                              const ConvEpilogue& epilogue) const {
    return gather(output_direction(), input, w, bias, epilogue, prologue);
  }
  /// With the following steps that its pass can apply.
  [[nodiscard]] Tensor input_gradient(const Tensor& g, const Tensor& w, Needs needs) const {
    const ConvDirection direction = transposed ? ConvDirection::dgrad : ConvDirection::forward;
    Onward onward = needs.onward();
    if (onward.derivative == nullptr && !onward.sum.defined()) return gather(direction, g, w);
    const ConvEpilogue epilogue = steps_with(direction, g, onward);
    needs.take(onward);
    return gather(direction, g, w, {}, epilogue);
  }
  [[nodiscard]] Tensor weight_gradient(const Tensor& input, const Tensor& g) const {
    return transposed ? wgrad(input, g) : wgrad(g, input);
  }

 private:
  static Tensor dense(const Tensor& bias) { return bias.defined() ? bias.contiguous() : bias; }

  /// The steps that are computed with a gradient; the others are removed from `onward`. The derivative of a separate activation
  /// (Derivative::is_all) is always taken: a kernel that cannot fuse it launches it afterwards. Any other derivative is taken
  /// only if the kernel fuses it and the tensor has at least 64 MiB: smaller ones stay in a cache, where reading them again
  /// costs little. A sum alone is taken if the kernel fuses it.
  [[nodiscard]] ConvEpilogue steps_with(ConvDirection direction, const Tensor& g, Onward& onward) const {
    const auto lies_like_result = [&](const Tensor& tensor) {
      return tensor.is_contiguous() && tensor.shape() == result_shape(direction) && tensor.dtype() == g.dtype() &&
             tensor.device() == g.device();
    };
    ConvEpilogue epilogue;
    if (onward.derivative != nullptr) {
      const Derivative& derivative = *onward.derivative;
      epilogue.activation = derivative.activation, epilogue.slope = derivative.slope;
      epilogue.derivative = derivative.result.get();
      if (!lies_like_result(epilogue.derivative)) return onward = {}, ConvEpilogue{};
    }
    if (onward.sum.defined() && lies_like_result(onward.sum)) epilogue.residual = onward.sum;
    if (!epilogue.residual.defined()) onward.sum = {};
    constexpr std::int64_t kLargeBytes = 1 << 26;
    const bool is_large = result_shape(direction).numel() * static_cast<std::int64_t>(size_of(g.dtype())) >= kLargeBytes;
    const bool stands_alone = onward.derivative != nullptr && onward.derivative->is_all,
               adds_only = onward.derivative == nullptr;
    if (stands_alone) return epilogue;
    if ((is_large || adds_only) && backend_of(g.device()).fuses(problem, direction, epilogue, algorithm, precision))
      return epilogue;
    return onward = {}, ConvEpilogue{};
  }
};

// What the backward pass knows about an epilogue.
struct Followed {
  Activation activation = Activation::none;
  double slope = 0, scale = 1;
  bool has_residual = false;
  Saved value{};  // the activation's result; for snake its argument
  Saved alpha{}, beta{};
};

// The gradients before the epilogue: of the sums, and of the bias and snake's parameters if they are needed. The bias' is
// undefined where it has no pass with others.
struct BeforeEpilogue {
  Tensor sums, bias{}, alpha{}, beta{};
};

Tensor bias_like(const Tensor& gradient) { return Tensor::empty({gradient.size(1)}, {gradient.dtype(), gradient.device()}); }

// The sums over samples and positions.
Tensor bias_gradient(const Tensor& gradient) {
  const Tensor bias = bias_like(gradient);
  Backend& backend = backend_of(gradient.device());
  if (gradient.numel() == 0) {
    backend.fill(bias, 0);
  } else {
    backend.activation_backward({}, {}, gradient, {}, bias);
  }
  return bias;
}

BeforeEpilogue epilogue_backward(const Followed& epilogue, const Tensor& grad, Needs needs) {
  const bool is_snake = epilogue.activation == Activation::snake;
  const bool active = epilogue.activation != Activation::none && !is_snake && !needs.is_differentiated();
  const Tensor gradient = epilogue.has_residual && epilogue.scale != 1 ? mul(grad, epilogue.scale) : grad;
  BeforeEpilogue before{active ? Tensor::empty(gradient.shape(), {gradient.dtype(), gradient.device()}) : gradient};
  if (is_snake) {
    const SnakeGradients got = ops::snake_backward(epilogue.value.get(), epilogue.alpha.get(), epilogue.beta.get(), gradient,
                                                   {needs[0] || needs[1] || needs[2], needs[3], needs[4]});
    before = {got.x, {}, got.alpha, got.beta};
  }
  if (active && gradient.numel() > 0) {
    if (needs[2]) before.bias = bias_like(gradient);
    backend_of(gradient.device())
        .activation_backward({epilogue.activation, epilogue.slope}, epilogue.value.get(), gradient, before.sums, before.bias);
  }
  return before;
}

// The parameters of snake and the residual in the form that kernels read.
ConvEpilogue dense(ConvEpilogue epilogue) {
  for (Tensor* tensor : {&epilogue.alpha, &epilogue.beta, &epilogue.residual})
    if (tensor->defined()) *tensor = tensor->detach().contiguous();
  return epilogue;
}

// The prologue is only for calls that record no gradients.
Tensor convolve(const Convolution& conv, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvPrologue& prologue, ConvEpilogue epilogue) {
  if (x.rank() == 2) {
    if (epilogue.residual.defined()) epilogue.residual = epilogue.residual.unsqueeze(0);
    return convolve(conv, x.unsqueeze(0), weight, bias, prologue, epilogue).squeeze(0);
  }
  const std::array inputs{x, weight, bias, epilogue.alpha, epilogue.beta, epilogue.residual};
  const bool followed = autograd::should_record(inputs), is_snake = epilogue.activation == Activation::snake;
  const Tensor input = x.detach().contiguous();  // saved in the form that the weight gradient needs
  if (is_snake && followed)
    epilogue.before = Tensor::empty(conv.result_shape(conv.output_direction()), {x.dtype(), x.device()});
  Tensor output = conv.output(input, weight.detach(), bias.defined() ? bias.detach() : bias, prologue, dense(epilogue));
  Followed of{epilogue.activation, epilogue.slope, epilogue.scale, epilogue.residual.defined()};
  of.value = save_if(followed && epilogue.activation != Activation::none, is_snake ? epilogue.before : output);
  of.alpha = save_if(followed && is_snake, epilogue.alpha);
  of.beta = save_if(followed && is_snake, epilogue.beta);
  Derivative derivative;
  if (of.value.defined() && !is_snake) derivative = {of.activation, of.slope, of.value};
  return autograd::record(
      conv.name, std::move(output), inputs,
      [conv, of = std::move(of), saved_x = save_if(follows_gradients(weight), input),
       saved_w = save_if(follows_gradients(x), weight)](const Tensor& grad, Needs needs) {
        const BeforeEpilogue before = epilogue_backward(of, grad.contiguous(), needs);
        Gradients gradients(6);
        gradients[2] = before.bias;
        const bool needs_bias = needs[2] && !before.bias.defined();
        if (needs[1] || needs_bias) {
          const Tensor source = needs[1] ? saved_x.get() : Tensor();
          needs.aside({1, 2}, {source, before.sums}, [&] {
            if (needs[1]) gradients[1] = conv.weight_gradient(source, before.sums);
            if (needs_bias) gradients[2] = bias_gradient(before.sums);
          });
        }
        if (needs[0]) gradients[0] = conv.input_gradient(before.sums, saved_w.get(), needs);
        gradients[3] = before.alpha;
        gradients[4] = before.beta;
        if (needs[5]) gradients[5] = grad;
        return gradients;
      },
      std::move(derivative));
}

void require_residual(const Convolution& conv, const Tensor& x, const Tensor& residual) {
  if (!residual.defined()) return;
  const Shape result = conv.result_shape(conv.output_direction());
  const Shape expected = x.rank() == 2 ? Shape{result[1], result[2]} : result;
  require<ShapeError>(residual.shape() == expected, conv.name, ": expected a residual of the output's shape ", expected,
                      ", got ", residual.shape());
  ops::require_alike(conv.name, std::array{x, residual});
}

Tensor conv_transpose1d_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTranspose1dOptions& options,
                           const ConvPrologue& prologue, const ConvEpilogue& epilogue) {
  const Tensor in = lowered(x), w = lowered(weight), b = lowered(bias);
  const Convolution conv{"conv_transpose1d", ops::conv_transpose1d_problem(in, w, b, options), true};
  require_residual(conv, in, epilogue.residual);
  return convolve(conv, in, w, b, prologue, epilogue);
}

Tensor conv1d_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
                 const ConvPrologue& prologue, const ConvEpilogue& epilogue) {
  const Tensor in = lowered(x), w = lowered(weight), b = lowered(bias);
  const Convolution conv{"conv1d", ops::conv1d_problem(in, w, b, options), false};
  require_residual(conv, in, epilogue.residual);
  if (options.padding_mode == PaddingMode::zeros) return convolve(conv, in, w, b, prologue, epilogue);

  const Tensor padded = pad1d(in, {conv.problem.P_l, conv.problem.P_r}, options.padding_mode);
  Conv1dOptions unpadded = options;
  unpadded.padding = 0;
  return convolve({"conv1d", ops::conv1d_problem(padded, w, b, unpadded), false}, padded, w, b, prologue, epilogue);
}

// Whether the convolution's pass can apply the epilogue.
bool fuses(const ConvEpilogue& epilogue, const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t channels) {
  // Under autocast the convolution computes in that dtype, but f64 in f64, and the sum has the wider dtype of both operands.
  const std::optional<DType> cast = autocast_dtype();
  if (epilogue.residual.defined() && cast && (x.dtype() == DType::f64 || epilogue.residual.dtype() != *cast)) return false;
  switch (epilogue.activation) {
    case Activation::none:
      return true;
    case Activation::snake:
      return !autocast_dtype() && ops::is_of_channels(epilogue.alpha, channels, x) &&
             ops::is_of_channels(epilogue.beta, channels, x);
    default:
      // The derivative is computed from the activation's result (leaky_relu: its sign), which is not available with a residual.
      if (epilogue.activation == Activation::leaky_relu && !(epilogue.slope >= 0)) return false;
      return !epilogue.residual.defined() || !autograd::should_record(std::array{x, weight, bias, epilogue.residual});
  }
}

Tensor activated(const Tensor& x, const ConvEpilogue& epilogue) {
  switch (epilogue.activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu(x);
    case Activation::leaky_relu:
      return leaky_relu(x, epilogue.slope);
    case Activation::tanh:
      return tanh(x);
    case Activation::snake:
      if (epilogue.beta.is_same(epilogue.alpha)) return snake(x, epilogue.alpha);
      return snake_beta(x, epilogue.alpha, epilogue.beta);
  }
  return x;
}

// activation(convolution), then the residual as a separate operation.
template <class Convolve>
Tensor in_steps(const char* name, const ConvEpilogue& epilogue, bool fuses_activation, const Convolve& convolve) {
  ConvEpilogue first = epilogue;
  first.residual = {};
  if (!fuses_activation) first.activation = Activation::none;
  const Tensor y = convolve(first), active = fuses_activation ? y : activated(y, epilogue);
  if (!epilogue.residual.defined()) return active;
  require<ShapeError>(epilogue.residual.shape() == active.shape(), name, ": expected a residual of the output's shape ",
                      active.shape(), ", got ", epilogue.residual.shape());
  return add_scaled(epilogue.residual, active, epilogue.scale);
}

// The epilogue for the backend. Throws Error if `output` contains a meaningless combination.
ConvEpilogue epilogue_of(const char* name, const ConvOutputOptions& output) {
  const bool is_snake = output.activation == Activation::snake;
  require<Error>(!is_snake || output.alpha.defined(), name, ": expected alpha (C_out) with activation snake, got none");
  require<Error>(is_snake || (!output.alpha.defined() && !output.beta.defined()), name,
                 ": expected alpha and beta with activation snake alone, got them with another activation");
  require<Error>(output.scale == 1 || output.residual.defined(), name, ": expected a residual with scale ", output.scale,
                 ", got none");
  return {.activation = output.activation,
          .slope = output.activation == Activation::leaky_relu ? output.slope : 0,
          .alpha = output.alpha,
          .beta = output.beta.defined() ? output.beta : output.alpha,
          .residual = output.residual,
          .scale = output.scale};
}

// activation(x), as an operation of its own.
Tensor activated_input(const Tensor& x, const ConvInputOptions& input) {
  return activated(x, {.activation = input.activation,
                       .slope = input.slope,
                       .alpha = input.alpha,
                       .beta = input.beta.defined() ? input.beta : input.alpha});
}

// convolve(x, prologue): the activation of x is a separate operation if gradients are recorded, or x is cast
// first.
template <class Convolve>
Tensor with_input(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOutputOptions& output,
                  const ConvInputOptions& input, const Convolve& convolve) {
  ops::check_input(name, input);
  if (input.activation == Activation::none) return convolve(x, ConvPrologue{});
  ops::require_defined(name, "x", x);
  const std::array inputs{x, weight, bias, input.alpha, input.beta, output.alpha, output.beta, output.residual};
  if (!autocast_dtype() && !autograd::should_record(inputs) && ops::fits(input, x)) return convolve(x, ops::prologue_of(input));
  return convolve(activated_input(x, input), ConvPrologue{});
}

// The whole epilogue in the convolution's pass, or only its activation, or nothing.
template <class Convolve>
Tensor with_output(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias, int channel_dim,
                   std::int64_t groups, const ConvOutputOptions& output, const Convolve& convolve) {
  ops::require_defined(name, "x", x);
  ops::require_defined(name, "weight", weight);
  const ConvEpilogue epilogue = epilogue_of(name, output);
  const std::int64_t channels = weight.rank() == 3 ? weight.size(channel_dim) * groups : 0;
  if (fuses(epilogue, x, weight, bias, channels)) return convolve(epilogue);
  ConvEpilogue without = epilogue;
  without.residual = {};
  return in_steps(name, epilogue, fuses(without, x, weight, bias, channels), convolve);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, PaddingMode mode) {
  switch (mode) {
    case PaddingMode::zeros:
      return out << "zeros";
    case PaddingMode::reflect:
      return out << "reflect";
    case PaddingMode::replicate:
      return out << "replicate";
  }
  return out << "unknown";
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTranspose1dOptions& options) {
  return conv_transpose1d_of(x, weight, bias, options, {}, {});
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options) {
  return conv1d_of(x, weight, bias, options, {}, {});
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTranspose1dOptions& options,
                        const ConvOutputOptions& output, const ConvInputOptions& input) {
  static constexpr const char* kName = "conv_transpose1d";
  return with_input(kName, x, weight, bias, output, input, [&](const Tensor& read, const ConvPrologue& prologue) {
    return with_output(kName, read, weight, bias, 1, options.groups, output, [&](const ConvEpilogue& fused) {
      return conv_transpose1d_of(read, weight, bias, options, prologue, fused);
    });
  });
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
              const ConvOutputOptions& output, const ConvInputOptions& input) {
  static constexpr const char* kName = "conv1d";
  return with_input(kName, x, weight, bias, output, input, [&](const Tensor& read, const ConvPrologue& prologue) {
    return with_output(kName, read, weight, bias, 0, 1, output,
                       [&](const ConvEpilogue& fused) { return conv1d_of(read, weight, bias, options, prologue, fused); });
  });
}

}  // namespace polyphase
