#include "ops/conv.hpp"

#include <array>
#include <ostream>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "conv/algorithm.hpp"
#include "ops/activations.hpp"
#include "ops/conv_activated.hpp"
#include "ops/conv_problem.hpp"
#include "ops/dispatch.hpp"
#include "ops/length.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::lowered;
using autograd::Needs;
using autograd::save_if;
using autograd::Saved;

namespace {

// One of the problem's directions with the algorithm and precision it was asked for. The same for both layers: forward and
// dgrad change places (conv/problem.hpp).
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
                              const ConvEpilogue& epilogue = {}) const {
    require_algorithm(source.device(), direction);
    const bool is_forward = direction == ConvDirection::forward;
    const Tensor out =
        Tensor::empty({problem.N, is_forward ? problem.C_out : problem.C_in, is_forward ? problem.L_out : problem.L_in},
                      {source.dtype(), source.device()});
    if (out.numel() == 0) return out;
    Backend& backend = backend_of(source.device());
    if (epilogue.activation != Activation::none) {
      backend.conv_activated(problem, direction, source.contiguous(), w.contiguous(), dense(bias), out, epilogue, algorithm,
                             precision);
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

  [[nodiscard]] Tensor output(const Tensor& input, const Tensor& w, const Tensor& bias, const ConvEpilogue& epilogue) const {
    return gather(transposed ? ConvDirection::forward : ConvDirection::dgrad, input, w, bias, epilogue);
  }
  [[nodiscard]] Tensor input_gradient(const Tensor& g, const Tensor& w) const {
    return gather(transposed ? ConvDirection::dgrad : ConvDirection::forward, g, w);
  }
  [[nodiscard]] Tensor weight_gradient(const Tensor& input, const Tensor& g) const {
    return transposed ? wgrad(input, g) : wgrad(g, input);
  }

 private:
  static Tensor dense(const Tensor& bias) { return bias.defined() ? bias.contiguous() : bias; }
};

// The gradients of what stands before the epilogue: of the sums, and of the bias if it is wanted.
struct BeforeEpilogue {
  Tensor sums, bias;
};
BeforeEpilogue epilogue_backward(const ConvEpilogue& epilogue, const Tensor& result, const Tensor& gradient, bool needs_bias) {
  const bool active = epilogue.activation != Activation::none;
  const TensorOptions options{gradient.dtype(), gradient.device()};
  BeforeEpilogue before{active ? Tensor::empty(gradient.shape(), options) : gradient,
                        needs_bias ? Tensor::empty({gradient.size(1)}, options) : Tensor()};
  Backend& backend = backend_of(gradient.device());
  if (gradient.numel() == 0) {
    if (needs_bias) backend.fill(before.bias, 0);
  } else if (active || needs_bias) {
    backend.activation_backward(epilogue, result, gradient, before.sums, before.bias);
  }
  return before;
}

Tensor convolve(const Convolution& conv, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvEpilogue& epilogue) {
  if (x.rank() == 2) return convolve(conv, x.unsqueeze(0), weight, bias, epilogue).squeeze(0);
  const Tensor input = x.detach().contiguous();  // saved in the form that the weight gradient wants
  Tensor output = conv.output(input, weight.detach(), bias.defined() ? bias.detach() : bias, epilogue);
  const bool active = epilogue.activation != Activation::none;
  const bool followed = follows_gradients(x) || follows_gradients(weight) || follows_gradients(bias);
  Saved saved_y = save_if(active && followed, output);
  return autograd::record(
      conv.name, std::move(output), {x, weight, bias},
      [conv, kind = epilogue.activation, slope = epilogue.slope, saved_x = save_if(follows_gradients(weight), input),
       saved_w = save_if(follows_gradients(x), weight), saved_y = std::move(saved_y)](const Tensor& grad, Needs needs) {
        const auto [g, bias_gradient] = epilogue_backward({kind, slope}, saved_y.get(), grad.contiguous(), needs[2]);
        Gradients gradients(3);
        if (needs[0]) gradients[0] = conv.input_gradient(g, saved_w.get());
        if (needs[1]) gradients[1] = conv.weight_gradient(saved_x.get(), g);
        gradients[2] = bias_gradient;
        return gradients;
      });
}

Tensor conv_transpose1d_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTranspose1dOptions& options,
                           const ConvEpilogue& epilogue) {
  const Tensor in = lowered(x), w = lowered(weight), b = lowered(bias);
  return convolve({"conv_transpose1d", ops::conv_transpose1d_problem(in, w, b, options), true}, in, w, b, epilogue);
}

Tensor conv1d_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
                 const ConvEpilogue& epilogue) {
  const Tensor in = lowered(x), w = lowered(weight), b = lowered(bias);
  const ConvProblem problem = ops::conv1d_problem(in, w, b, options);
  if (options.padding_mode == PaddingMode::zeros) return convolve({"conv1d", problem, false}, in, w, b, epilogue);

  const Tensor padded = pad1d(in, {problem.P_l, problem.P_r}, options.padding_mode);
  Conv1dOptions unpadded = options;
  unpadded.padding = 0;
  return convolve({"conv1d", ops::conv1d_problem(padded, w, b, unpadded), false}, padded, w, b, epilogue);
}

// Whether the convolution's pass can apply the epilogue.
bool fuses(const ConvEpilogue& epilogue, const Tensor& x, const Tensor& weight, const Tensor& bias, std::int64_t channels) {
  switch (epilogue.activation) {
    case Activation::leaky_relu:  // the derivative is known from the result's sign
      return epilogue.slope >= 0;
    case Activation::snake: {
      const auto fits = [&](const Tensor& values) {
        return values.rank() == 1 && values.size(0) == channels && values.dtype() == x.dtype() && values.device() == x.device();
      };
      return !autocast_dtype() && fits(epilogue.alpha) && fits(epilogue.beta) &&
             !autograd::should_record(std::array{x, weight, bias, epilogue.alpha, epilogue.beta});
    }
    default:
      return true;
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
      return snake_beta(x, epilogue.alpha, epilogue.beta);
  }
  return x;
}

// The parameters of Snake as kernels read them.
ConvEpilogue dense(const ConvEpilogue& epilogue) {
  if (epilogue.activation != Activation::snake) return epilogue;
  return {epilogue.activation, epilogue.slope, epilogue.alpha.detach().contiguous(), epilogue.beta.detach().contiguous()};
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
  return conv_transpose1d_of(x, weight, bias, options, {});
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options) {
  return conv1d_of(x, weight, bias, options, {});
}

namespace ops {

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvTranspose1dOptions& options,
                        const ConvEpilogue& epilogue) {
  const std::int64_t channels = weight.rank() == 3 ? weight.size(1) * options.groups : 0;
  if (!fuses(epilogue, x, weight, bias, channels))
    return activated(conv_transpose1d_of(x, weight, bias, options, {}), epilogue);
  return conv_transpose1d_of(x, weight, bias, options, dense(epilogue));
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options,
              const ConvEpilogue& epilogue) {
  const std::int64_t channels = weight.rank() == 3 ? weight.size(0) : 0;
  if (!fuses(epilogue, x, weight, bias, channels)) return activated(conv1d_of(x, weight, bias, options, {}), epilogue);
  return conv1d_of(x, weight, bias, options, dense(epilogue));
}

}  // namespace ops
}  // namespace polyphase
