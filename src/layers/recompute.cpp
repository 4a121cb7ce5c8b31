#include "layers/recompute.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/engine.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
#include "layers/streaming/stream.hpp"
#include "ops/length.hpp"
#include "tensor/random.hpp"

namespace polyphase {
namespace {

/// Gives the thread's generator an earlier state until the end of the scope.
class Rewind {
 public:
  explicit Rewind(GeneratorState state) : after_(default_generator().state()) { default_generator().set_state(state); }
  ~Rewind() { default_generator().set_state(after_); }
  Rewind(const Rewind&) = delete;
  Rewind& operator=(const Rewind&) = delete;

 private:
  GeneratorState after_;
};

/// How module(x) was computed.
struct Circumstances {
  std::optional<DType> autocast = autocast_dtype();
  GeneratorState random = default_generator().state();
};

Tensor computed_again(Module& module, const Tensor& x, const Circumstances& then) {
  const Rewind rewind(then.random);
  const GradModeGuard recording(true);
  if (!then.autocast) return module(x);
  const AutocastGuard autocast(*then.autocast);
  return module(x);
}

/// x and a parameter, if one is trained: so that the result is on the tape.
std::vector<Tensor> inputs_of(Module& module, const Tensor& x) {
  std::vector<Tensor> inputs{x};
  for (const Tensor& parameter : module.parameters())
    if (parameter.requires_grad() && inputs.size() == 1) inputs.push_back(parameter);
  return inputs;
}

/// How a module's outputs are cut into pieces, and which positions of its input each is computed from.
class Pieces {
 public:
  /// Throws NotImplemented where the module cannot be cut, Error where it is in training and depends on the whole then.
  Pieces(Module& module, const Tensor& x, std::int64_t piece) : stream_(module.make_stream()), length_(x.size(-1)) {
    const ReceptiveField field = receptive_field(module);
    require<NotImplemented>(field.left < -ModuleStream::kAllBefore / 2,
                            "recompute_in_pieces: expected a network of a finite receptive field, got one whose outputs depend "
                            "on the whole past");
    const NoGradGuard no_grad;
    (void)Stream(module).push(x.detach().narrow(-1, 0, 1));
    const auto [up, down] = stream_->rate();
    each_ = std::max<std::int64_t>(piece * up / down, 1);
    step_ = stream_->period() * down / up;
    least_ = field.left + field.right + 1;
  }

  /// Outputs of one piece.
  [[nodiscard]] std::int64_t each() const { return each_; }
  /// The positions of x that outputs first, ..., last are computed from: begun where the module repeats itself, and enough for
  /// an output.
  [[nodiscard]] Span cut_for(Span outputs) const {
    const Span inputs = stream_->inputs_of(outputs);
    const std::int64_t first = std::clamp<std::int64_t>(std::min(inputs.first, length_ - least_), 0, length_ - 1);
    return {first / step_ * step_, std::clamp<std::int64_t>(inputs.last, first, length_ - 1)};
  }
  [[nodiscard]] bool reaches_end(Span cut) const { return cut.last == length_ - 1; }
  /// The number of the first output of module(x from cut.first on).
  [[nodiscard]] std::int64_t first_output(Span cut) const {
    const auto [up, down] = stream_->rate();
    return cut.first * up / down;
  }

 private:
  std::unique_ptr<ModuleStream> stream_;
  std::int64_t length_, each_ = 1, step_ = 1, least_ = 1;
};

Tensor part_of(const Tensor& x, Span cut) { return x.detach().narrow(-1, cut.first, cut.last - cut.first + 1).clone(); }

Tensor forward_in_pieces(Module& module, const Tensor& x, const Pieces& pieces) {
  const NoGradGuard no_grad;
  std::vector<Tensor> results;
  for (std::int64_t begin = 0, end = 0;; begin = end) {
    const Span cut = pieces.cut_for({begin, begin + pieces.each() - 1});
    const Tensor y = module(part_of(x, cut));
    const std::int64_t first = pieces.first_output(cut), all = first + y.size(-1);
    end = std::min(begin + pieces.each(), all);
    if (end > begin) results.push_back(y.narrow(-1, begin - first, end - begin).clone());
    if (end <= begin || (end == all && pieces.reaches_end(cut))) return results.empty() ? y : cat(results, -1);
  }
}

/// Goes through the module piece by piece; the gradient of x, or undefined.
Tensor backward_in_pieces(Module& module, const Tensor& x, const Tensor& g, const Pieces& pieces, const Circumstances& then,
                          bool needs_x) {
  Tensor dx = needs_x ? Tensor::zeros_like(x) : Tensor();
  const std::int64_t all = g.size(-1);
  for (std::int64_t begin = 0; begin < all; begin += pieces.each()) {
    const std::int64_t size = std::min(pieces.each(), all - begin);
    const Span cut = pieces.cut_for({begin, begin + size - 1});
    Tensor part = part_of(x, cut);
    if (needs_x) part.set_requires_grad(true);
    Tensor y;
    {
      const GradModeGuard recording(true);
      y = computed_again(module, part, then).narrow(-1, begin - pieces.first_output(cut), size);
    }
    if (!y.requires_grad()) continue;  // the piece's outputs depend on nothing that is trained
    autograd::run_backward(y, g.narrow(-1, begin, size).contiguous(), /*retain_graph=*/false);
    if (needs_x) dx.narrow(-1, cut.first, cut.last - cut.first + 1) += part.grad();
  }
  return dx;
}

}  // namespace

Tensor recompute(Module& module, const Tensor& x) {
  const std::vector<Tensor> inputs = inputs_of(module, x);
  if (!autograd::should_record(inputs)) return module(x);
  const Circumstances now;
  Tensor y;
  {
    const NoGradGuard no_grad;
    y = module(x).detach();
  }
  return autograd::record(
      "recompute", y, inputs,
      [&module, saved = autograd::Saved(x), now, count = inputs.size()](const Tensor& g, autograd::Needs needs) {
        Tensor again = saved.get().detach();
        if (needs[0]) again.set_requires_grad(true);
        autograd::run_backward(computed_again(module, again, now), g, /*retain_graph=*/false);
        autograd::Gradients gradients(count);  // of the parameters they are at the leaves
        if (needs[0]) gradients[0] = again.grad();
        return gradients;
      });
}

Tensor recompute_in_pieces(Module& module, const Tensor& x, std::int64_t piece) {
  require<ShapeError>(x.rank() == 3 && x.size(2) >= 1 && piece >= 1,
                      "recompute_in_pieces: expected x (N, C, L >= 1) and a piece of at least 1, got ", x.shape(), " and ",
                      piece);
  const auto pieces = std::make_shared<Pieces>(module, x, piece);
  const Circumstances now;
  const Tensor y = forward_in_pieces(module, x, *pieces).detach();
  const std::vector<Tensor> inputs = inputs_of(module, x);
  if (!autograd::should_record(inputs)) return y;
  return autograd::record(
      "recompute_in_pieces", y, inputs,
      [&module, saved = autograd::Saved(x), now, pieces, count = inputs.size()](const Tensor& g, autograd::Needs needs) {
        autograd::Gradients gradients(count);
        gradients[0] = backward_in_pieces(module, saved.get(), g, *pieces, now, needs[0]);
        return gradients;
      });
}

}  // namespace polyphase
