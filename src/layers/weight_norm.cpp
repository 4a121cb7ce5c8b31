#include "layers/weight_norm.hpp"

#include <array>
#include <functional>
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
    Tensor w, parameter;             // off the tape, and what it is computed from
    std::function<Tensor()> record;  // puts it on the tape
    Tensor recorded{};
    Tensor get() {
      if (!grad_enabled()) return w;
      if (!recorded.defined()) recorded = record();
      return recorded;
    }
  };
  void add(const Weight* weight, Held of) { in_order.push_back(&(held[weight] = std::move(of))); }
  std::unordered_map<const Weight*, Held> held;
  std::vector<Held*> in_order;
  State* outer = innermost;
};

HeldWeights::HeldWeights(std::span<Module* const> modules) : state_(std::make_unique<State>()) {
  std::vector<Tensor> biases;
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
  for (std::size_t i = 0; i < of.size(); ++i)
    state_->add(of[i], {computed[i].w, inputs[i].v,
                        [weight = computed[i], from = inputs[i]] { return ops::recorded_weight(weight, from); }});
  hold(biases);
}

HeldWeights::HeldWeights(Spectral spectral) : state_(std::make_unique<State>()) {
  std::vector<Tensor> biases;
  std::vector<const Weight*> of;
  std::vector<ops::SpectralNormInputs> inputs;
  for (const WeightedLayer* layer : layers_where(spectral.module, [](const auto& each) { return each.has_spectral_norm(); })) {
    biases.push_back(layer->bias());
    const auto [matrix, left, right] = layer->held_weight().spectrum();
    if (size_of(matrix.dtype()) < size_of(DType::f32)) {
      const GradModeGuard recording(true);
      const Tensor w = layer->weight();
      state_->add(&layer->held_weight(), {w.detach(), matrix, [w] { return w; }});
      continue;
    }
    of.push_back(&layer->held_weight());
    inputs.push_back({matrix, left, right, layer->is_training()});
  }
  const std::vector<SpectralWeight> computed = ops::spectral_weights(inputs, autocast_dtype());
  for (std::size_t i = 0; i < of.size(); ++i)
    state_->add(of[i], {computed[i].w, inputs[i].W,
                        [weight = computed[i], from = inputs[i].W] { return ops::recorded_weight(weight, from); }});
  hold(biases);
}

void HeldWeights::hold(std::span<const Tensor> biases) {
  std::vector<Tensor> weights;
  for (State::Held* held : state_->in_order) {
    // What is recorded first is reached last by the backward pass, where all weights share their launches. An observer sends
    // gradients to other processes as they come, so its weights are recorded at their first use.
    if (!autograd::is_observed(held->parameter)) (void)held->get();
    weights.push_back(held->w);
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
