#include "layers/recompute.hpp"

#include <optional>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/engine.hpp"
#include "autograd/no_grad.hpp"
#include "autograd/node.hpp"
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

}  // namespace

Tensor recompute(Module& module, const Tensor& x) {
  std::vector<Tensor> inputs{x};
  for (const Tensor& parameter : module.parameters())
    if (parameter.requires_grad() && inputs.size() == 1) inputs.push_back(parameter);  // so that the result is on the tape
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

}  // namespace polyphase
