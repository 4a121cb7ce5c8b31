#include "ops/conv.hpp"

#include <ostream>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "conv/algorithm.hpp"
#include "ops/conv_problem.hpp"
#include "ops/dispatch.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"

namespace polyphase {

using autograd::follows_gradients;
using autograd::Gradients;
using autograd::lowered;
using autograd::Needs;
using autograd::save_if;

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

  // y (N, C_out, L_out) from x
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w, const Tensor& bias) const {
    require_algorithm(x.device(), ConvDirection::forward);
    const Tensor y = Tensor::empty({problem.N, problem.C_out, problem.L_out}, {x.dtype(), x.device()});
    if (y.numel() > 0)
      backend_of(x.device()).conv_forward(problem, x.contiguous(), w.contiguous(), dense(bias), y, algorithm, precision);
    return y;
  }

  // x (N, C_in, L_in) from y
  [[nodiscard]] Tensor dgrad(const Tensor& y, const Tensor& w, const Tensor& bias) const {
    require_algorithm(y.device(), ConvDirection::dgrad);
    const Tensor x = Tensor::empty({problem.N, problem.C_in, problem.L_in}, {y.dtype(), y.device()});
    if (x.numel() > 0)
      backend_of(y.device()).conv_dgrad(problem, y.contiguous(), w.contiguous(), dense(bias), x, algorithm, precision);
    return x;
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

  [[nodiscard]] Tensor input_gradient(const Tensor& g, const Tensor& w) const {
    return transposed ? dgrad(g, w, {}) : forward(g, w, {});
  }
  [[nodiscard]] Tensor weight_gradient(const Tensor& input, const Tensor& g) const {
    return transposed ? wgrad(input, g) : wgrad(g, input);
  }

 private:
  static Tensor dense(const Tensor& bias) { return bias.defined() ? bias.contiguous() : bias; }
};

Tensor convolve(const Convolution& conv, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.rank() == 2) return convolve(conv, x.unsqueeze(0), weight, bias).squeeze(0);
  const Tensor input = x.detach().contiguous();  // saved in the form that the weight gradient wants
  Tensor output = conv.transposed ? conv.forward(input, weight.detach(), bias.defined() ? bias.detach() : bias)
                                  : conv.dgrad(input, weight.detach(), bias.defined() ? bias.detach() : bias);
  return autograd::record(conv.name, std::move(output), {x, weight, bias},
                          [conv, saved_x = save_if(follows_gradients(weight), input),
                           saved_w = save_if(follows_gradients(x), weight)](const Tensor& grad, Needs needs) {
                            const Tensor g = grad.contiguous();
                            Gradients gradients(3);
                            if (needs[0]) gradients[0] = conv.input_gradient(g, saved_w.get());
                            if (needs[1]) gradients[1] = conv.weight_gradient(saved_x.get(), g);
                            if (needs[2]) gradients[2] = sum(g, {0, 2});
                            return gradients;
                          });
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
  const Tensor in = lowered(x), w = lowered(weight), b = lowered(bias);
  return convolve({"conv_transpose1d", ops::conv_transpose1d_problem(in, w, b, options), true}, in, w, b);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv1dOptions& options) {
  const Tensor in = lowered(x), w = lowered(weight), b = lowered(bias);
  const ConvProblem problem = ops::conv1d_problem(in, w, b, options);
  if (options.padding_mode == PaddingMode::zeros) return convolve({"conv1d", problem, false}, in, w, b);

  const Tensor padded = pad1d(in, {problem.P_l, problem.P_r}, options.padding_mode);
  Conv1dOptions unpadded = options;
  unpadded.padding = 0;
  return convolve({"conv1d", ops::conv1d_problem(padded, w, b, unpadded), false}, padded, w, b);
}

}  // namespace polyphase
