#include "layers/losses.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "autograd/autocast.hpp"
#include "autograd/node.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "ops/spectral.hpp"

namespace polyphase {

using autograd::raised;

namespace {

void require_equal_shapes(const char* loss, const Tensor& input, const Tensor& target) {
  ops::require_defined(loss, "input", input);
  ops::require_defined(loss, "target", target);
  require<ShapeError>(input.shape() == target.shape(), loss, ": expected a target of the input's shape ", input.shape(),
                      ", got ", target.shape());
}

// A loss that is a function of single elements, and its derivative with respect to the first operand.
struct ElementLoss {
  const char* name;
  MapOp value, gradient;
  double beta;   // p of both functions
  double slope;  // factor of the derivative
};

// Two tensors of one dtype of 16 bits, whose loss is a number.
bool is_narrow(const Tensor& x, const Tensor& y, Reduction reduction) {
  return reduction != Reduction::none && ops::is_half(x) && x.dtype() == y.dtype() && x.device() == y.device();
}

// One pass in each direction: the backward pass reads the gradient of the result in place and makes no tensors except its
// results. The loss of 16-bit tensors is computed in f32 from their elements and rounded once, and not at all under autocast.
Tensor element_loss(const ElementLoss& loss, const Tensor& input, const Tensor& target, Reduction reduction) {
  using autograd::promoted;
  using autograd::Saved;
  const bool narrow = is_narrow(input, target, reduction), stays_wide = narrow && autograd::raises(input);
  const Tensor x = narrow ? input : raised(input), y = narrow ? target : raised(target);
  if (autograd::promotes(x, y)) return element_loss(loss, promoted(x, y), promoted(y, x), reduction);
  ops::require_floating(loss.name, x);
  ops::require_alike(loss.name, std::array{x, y});

  const double scale = reduction == Reduction::mean ? 1 / static_cast<double>(x.numel()) : 1;
  Tensor result = reduction == Reduction::none ? ops::map(loss.name, loss.value, {x, y}, {loss.beta, 0})
                                               : ops::reduce_map(loss.value, x, y, {loss.beta, scale});
  const bool followed = autograd::follows_gradients(x) || autograd::follows_gradients(y);
  result = autograd::record(loss.name, std::move(result), {x, y},
                            [loss, scale, narrow, saved_x = autograd::save_if(followed, x),
                             saved_y = autograd::save_if(followed, y)](const Tensor& g, autograd::Needs needs) {
                              const auto gradient = [&](const Saved& by, const Saved& other) {
                                const MapScalars scalars{loss.beta, scale * loss.slope};
                                if (narrow) return ops::pair_gradient(loss.gradient, by.get(), other.get(), g, scalars);
                                return ops::map(loss.name, loss.gradient, {by.get(), other.get(), g}, scalars);
                              };
                              return autograd::Gradients{needs[0] ? gradient(saved_x, saved_y) : Tensor(),
                                                         needs[1] ? gradient(saved_y, saved_x) : Tensor()};
                            });
  return narrow && !stays_wide ? result.to(x.dtype()) : result;
}

void check(const MultiResolutionStftOptions& options, const Tensor& input) {
  static constexpr const char* kName = "multi_resolution_stft_loss";
  require<ShapeError>(!options.resolutions.empty(), kName, ": expected at least one resolution, got none");
  require<ShapeError>(std::isfinite(options.epsilon) && options.epsilon > 0, kName, ": expected epsilon > 0, got ",
                      options.epsilon);
  require<ShapeError>(input.rank() >= 1 && input.numel() > 0, kName, ": expected signals (..., L), got ", input.shape());
  for (const StftResolution& resolution : options.resolutions) {
    require<ShapeError>(resolution.n_fft / 2 < input.size(-1), kName, ": n_fft=", resolution.n_fft, " needs L > ",
                        resolution.n_fft / 2, ", got L=", input.size(-1));
  }
}

Tensor floored_power(const Tensor& x, const StftResolution& resolution, double epsilon) {
  const Tensor power = power_spectrogram(
      x, {.n_fft = resolution.n_fft, .hop_length = resolution.hop_length, .win_length = resolution.win_length});
  return clamp(power, epsilon, std::numeric_limits<double>::infinity());
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  require_equal_shapes("mse_loss", input, target);
  return element_loss({"mse_loss", MapOp::squared_difference, MapOp::squared_difference_grad, 0, 2}, input, target, reduction);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  require_equal_shapes("l1_loss", input, target);
  return element_loss({"l1_loss", MapOp::smooth_l1, MapOp::smooth_l1_grad, 0, 1}, input, target, reduction);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta, Reduction reduction) {
  require_equal_shapes("smooth_l1_loss", input, target);
  require<ShapeError>(std::isfinite(beta) && beta >= 0, "smooth_l1_loss: expected beta >= 0, got ", beta);
  return element_loss({"smooth_l1_loss", MapOp::smooth_l1, MapOp::smooth_l1_grad, beta, 1}, input, target, reduction);
}

Tensor multi_resolution_stft_loss(const Tensor& input, const Tensor& target, const MultiResolutionStftOptions& options) {
  require_equal_shapes("multi_resolution_stft_loss", input, target);
  if (autograd::raises(input) || autograd::raises(target))
    return multi_resolution_stft_loss(raised(input), raised(target), options);
  check(options, input);
  Tensor total;
  for (const StftResolution& resolution : options.resolutions) {
    const Tensor x = floored_power(input, resolution, options.epsilon);
    const Tensor y = floored_power(target, resolution, options.epsilon);
    const Tensor y_magnitude = sqrt(y);
    const Tensor convergence = norm(y_magnitude - sqrt(x)) / norm(y_magnitude);
    const Tensor log_distance = mean(abs(log(y) - log(x))) * 0.5;  // of magnitudes: log sqrt(p) = log(p)/2
    const Tensor loss = convergence * options.spectral_convergence_weight + log_distance * options.log_magnitude_weight;
    total = total.defined() ? total + loss : loss;
  }
  return total * (1.0 / static_cast<double>(options.resolutions.size()));
}

}  // namespace polyphase
