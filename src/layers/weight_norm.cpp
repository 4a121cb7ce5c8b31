#include "layers/weight_norm.hpp"

#include "layers/conv_transpose1d.hpp"
#include "layers/weight.hpp"

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

HeldWeights::HeldWeights(Module& module)
    : layers_(layers_where(module, [](const WeightedLayer& layer) { return layer.has_weight_norm(); })) {
  for (WeightedLayer* layer : layers_) layer->hold_weight();
}

HeldWeights::~HeldWeights() {
  for (WeightedLayer* layer : layers_) layer->release_weight();
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
