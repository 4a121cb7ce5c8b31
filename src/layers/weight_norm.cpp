#include "layers/weight_norm.hpp"

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

std::vector<WeightedLayer*> layers_where(Module& module, bool normalised) {
  std::vector<WeightedLayer*> layers = WeightedLayers(module).found;
  std::erase_if(layers, [normalised](const WeightedLayer* layer) { return layer->has_weight_norm() != normalised; });
  return layers;
}

}  // namespace

void weight_norm(Module& module) {
  const std::vector<WeightedLayer*> layers = layers_where(module, false);
  require<Error>(!layers.empty(), "weight_norm: expected a layer with a plain weight, found none");
  for (WeightedLayer* layer : layers) layer->normalise_weight();
}

void remove_weight_norm(Module& module) {
  const std::vector<WeightedLayer*> layers = layers_where(module, true);
  require<Error>(!layers.empty(), "remove_weight_norm: expected a weight-normalised layer, found none");
  for (WeightedLayer* layer : layers) layer->fold_weight();
}

}  // namespace polyphase
