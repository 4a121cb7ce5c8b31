#include "layers/weight_norm.hpp"

#include <array>
#include <unordered_map>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/engine.hpp"
#include "autograd/no_grad.hpp"
#include "device/backend.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/weight.hpp"
#include "ops/dispatch.hpp"

namespace polyphase {
namespace {

/// Lists the layers of a tree that have a weight.
class WeightedLayers : public Visitor {
 public:
  explicit WeightedLayers(Module& root) { module("", root); }
  void parameter(std::string_view, Tensor&) override {}
  void buffer(std::string_view, Tensor&) override {}
  void module(std::string_view, Module& child) override {
    if (auto* layer = dynamic_cast<WeightedLayer*>(&child)) found.push_back(layer);
    child.visit(*this);
  }

  std::vector<WeightedLayer*> found;
};

template <class Condition>
std::vector<WeightedLayer*> layers_where(Module& module, const Condition& condition) {
  std::vector<WeightedLayer*> layers = WeightedLayers(module).found;
  std::erase_if(layers, [&](const WeightedLayer* layer) { return !condition(*layer); });
  return layers;
}

bool is_plain(const WeightedLayer& layer) { return !layer.has_weight_norm() && !layer.has_spectral_norm(); }

}  // namespace

void weight_norm(Module& module) {
  const std::vector<WeightedLayer*> layers = layers_where(module, is_plain);
  require<Error>(!layers.empty(), "weight_norm: expected a layer with a plain weight, found none");
  for (WeightedLayer* layer : layers) layer->normalise_weight();
}

void remove_weight_norm(Module& module) {
  const auto layers = layers_where(module, [](const WeightedLayer& layer) { return layer.has_weight_norm(); });
  require<Error>(!layers.empty(), "remove_weight_norm: expected a weight-normalised layer, found none");
  for (WeightedLayer* layer : layers) layer->fold_weight();
}

constinit thread_local HeldWeights::State* HeldWeights::innermost = nullptr;

HeldWeights::HeldWeights(Module& module) : HeldWeights(std::array{&module}) {}

struct HeldWeights::State {
  struct Held {
    ops::WeightNormInputs inputs;
    NormalizedWeight weight;
    Tensor recorded{};
    Tensor get() {
      if (!grad_enabled()) return weight.w;
      if (!recorded.defined()) recorded = ops::recorded_weight(weight, inputs);
      return recorded;
    }
  };
  std::unordered_map<const Weight*, Held> held;
  State* outer = innermost;
};

HeldWeights::HeldWeights(std::span<Module* const> modules) : state_(std::make_unique<State>()) {
  std::vector<Tensor> biases, weights;
  std::vector<const Weight*> of;
  std::vector<ops::WeightNormInputs> inputs;
  for (Module* module : modules)
    for (const WeightedLayer* layer : WeightedLayers(*module).found) {
      biases.push_back(layer->bias());
      const auto [v, g] = layer->held_weight().normalised();
      if (!v.defined() || size_of(v.dtype()) < size_of(DType::f32)) continue;
      of.push_back(&layer->held_weight());
      inputs.push_back({v, g});
    }
  const std::vector<NormalizedWeight> computed = ops::normalized_weights(inputs, autocast_dtype());
  for (std::size_t i = 0; i < of.size(); ++i) {
    State::Held& held = state_->held[of[i]] = {inputs[i], computed[i]};
    // What is recorded first is reached last by the backward pass, where all weights share their launches. An observer sends
    // gradients to other processes as they come, so its weights are recorded at their first use.
    if (!autograd::is_observed(inputs[i].v)) (void)held.get();
    weights.push_back(computed[i].w);
  }
  autograd::lower_ahead(biases);
  if (!weights.empty()) backend_of(weights[0].device()).announce(weights);
  innermost = state_.get();
}

HeldWeights::~HeldWeights() { innermost = state_->outer; }

Tensor HeldWeights::find(const Weight& weight) {
  for (State* state = innermost; state != nullptr; state = state->outer)
    if (const auto found = state->held.find(&weight); found != state->held.end()) return found->second.get();
  return {};
}

void spectral_norm(Module& module) {
  const std::vector<WeightedLayer*> layers = layers_where(module, is_plain);
  require<Error>(!layers.empty(), "spectral_norm: expected a layer with a plain weight, found none");
  for (const WeightedLayer* layer : layers)
    require<NotImplemented>(dynamic_cast<const ConvTranspose1d*>(layer) == nullptr,
                            "spectral_norm: expected Conv1d or Linear, got a ConvTranspose1d");
  for (WeightedLayer* layer : layers) layer->normalise_spectrum();
}

void remove_spectral_norm(Module& module) {
  const auto layers = layers_where(module, [](const WeightedLayer& layer) { return layer.has_spectral_norm(); });
  require<Error>(!layers.empty(), "remove_spectral_norm: expected a layer under spectral norm, found none");
  for (WeightedLayer* layer : layers) layer->fold_weight();
}

}  // namespace polyphase
