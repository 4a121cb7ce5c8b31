#include "layers/losses.hpp"

#include <cmath>
#include <limits>

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
  require<ShapeError>(input.shape() == target.shape(), loss, ": expected a target of the input's shape ", input.shape(),
                      ", got ", target.shape());
}

Tensor reduce(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return sum(losses);
    case Reduction::none:
      return losses;
    case Reduction::mean:
      break;
  }
  return mean(losses);
}

// In one pass each way, not composed: where() over two branches would keep four intermediate tensors.
Tensor smooth_l1(const Tensor& input, const Tensor& target, double beta) {
  using autograd::Gradients;
  using autograd::Saved;
  static constexpr const char* kName = "smooth_l1_loss";
  Tensor losses = ops::map(kName, MapOp::smooth_l1, {input, target}, {.p = beta});
  return autograd::record(kName, losses, {input, target},
                          [a = Saved(input), b = Saved(target), beta](const Tensor& g, autograd::Needs needs) {
                            const Tensor slope = ops::map(kName, MapOp::smooth_l1_grad, {a.get(), b.get()}, {.p = beta});
                            const Tensor grad = g * slope;
                            return Gradients{needs[0] ? grad : Tensor(), needs[1] ? -grad : Tensor()};
                          });
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
  return reduce(square(raised(input) - raised(target)), reduction);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  require_equal_shapes("l1_loss", input, target);
  return reduce(abs(raised(input) - raised(target)), reduction);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta, Reduction reduction) {
  require_equal_shapes("smooth_l1_loss", input, target);
  require<ShapeError>(std::isfinite(beta) && beta >= 0, "smooth_l1_loss: expected beta >= 0, got ", beta);
  const Tensor a = raised(input), b = raised(target);
  return reduce(beta == 0 ? abs(a - b) : smooth_l1(a, b, beta), reduction);
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
