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

/// The positions of x that the outputs first, ..., last are computed from, begun where the module repeats itself.
Span cut_for(const ModuleStream& stream, Span outputs, std::int64_t length) {
  const auto [up, down] = stream.rate();
  const std::int64_t step = stream.period() * down / up;
  const Span inputs = stream.inputs_of(outputs);
  const std::int64_t first = std::clamp<std::int64_t>(inputs.first, 0, length - 1);
  return {first / step * step, std::clamp<std::int64_t>(inputs.last, first, length - 1)};
}

/// Outputs of pieces of x: (first, last) of each.
std::vector<Span> output_pieces(const ModuleStream& stream, std::int64_t outputs, std::int64_t piece) {
  const auto [up, down] = stream.rate();
  const std::int64_t each = std::max<std::int64_t>(piece * up / down, 1);
  std::vector<Span> pieces;
  for (std::int64_t begin = 0; begin < outputs; begin += each) pieces.push_back({begin, std::min(begin + each, outputs) - 1});
  return pieces;
}

Tensor streamed(Module& module, const Tensor& x, std::int64_t piece) {
  const NoGradGuard no_grad;
  Stream stream(module);
  stream.reserve(piece);
  const Tensor begin = stream.push(x.detach());
  return cat({begin, stream.finish()}, -1).detach();
}

/// Goes through the module piece by piece; the gradient of x, or undefined.
Tensor backward_in_pieces(Module& module, const Tensor& x, const Tensor& g, std::int64_t piece, const Circumstances& then,
                          bool needs_x) {
  const std::unique_ptr<ModuleStream> stream = module.make_stream();
  const auto [up, down] = stream->rate();
  Tensor dx = needs_x ? Tensor::zeros_like(x) : Tensor();
  for (const Span& outputs : output_pieces(*stream, g.size(-1), piece)) {
    const Span cut = cut_for(*stream, outputs, x.size(-1));
    const std::int64_t count = cut.last - cut.first + 1;
    Tensor part = x.narrow(-1, cut.first, count).detach().clone();
    if (needs_x) part.set_requires_grad(true);
    const std::int64_t size = outputs.last - outputs.first + 1;
    Tensor y;
    {
      const GradModeGuard recording(true);
      y = computed_again(module, part, then).narrow(-1, outputs.first - cut.first * up / down, size);
    }
    if (!y.requires_grad()) continue;  // the piece's outputs depend on nothing that is trained
    autograd::run_backward(y, g.narrow(-1, outputs.first, size).contiguous(), /*retain_graph=*/false);
    if (needs_x) dx.narrow(-1, cut.first, count) += part.grad();
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
  require<ShapeError>(x.rank() == 3 && piece >= 1, "recompute_in_pieces: expected x (N, C, L) and a piece of at least 1, got ",
                      x.shape(), " and ", piece);
  const ReceptiveField field = receptive_field(module);
  require<NotImplemented>(
      field.left < -ModuleStream::kAllBefore / 2,
      "recompute_in_pieces: expected a network of a finite receptive field, got one whose outputs depend on "
      "the whole past");
  const Circumstances now;
  const Tensor y = streamed(module, x, piece);
  const std::vector<Tensor> inputs = inputs_of(module, x);
  if (!autograd::should_record(inputs)) return y;
  return autograd::record(
      "recompute_in_pieces", y, inputs,
      [&module, saved = autograd::Saved(x), now, piece, count = inputs.size()](const Tensor& g, autograd::Needs needs) {
        autograd::Gradients gradients(count);
        gradients[0] = backward_in_pieces(module, saved.get().detach(), g, piece, now, needs[0]);
        return gradients;
      });
}

}  // namespace polyphase
