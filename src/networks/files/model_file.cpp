#include "networks/files/model_file.hpp"

#include <algorithm>
#include <utility>

#include "autograd/no_grad.hpp"
#include "io/weights.hpp"
#include "networks/files/published_config.hpp"
#include "networks/files/published_names.hpp"
#include "networks/registry.hpp"

namespace polyphase {
namespace {

std::string known_networks() {
  std::string known;
  for (const NetworkEntry& entry : network_entries()) known += concat(known.empty() ? "" : ", ", entry.name);
  return known;
}

std::string name_of_network(const std::string& path, const WeightsFile& weights, const ModelOptions& options) {
  if (!options.network.empty()) return options.network;
  if (const auto named = weights.metadata.find("network"); named != weights.metadata.end()) return named->second;
  std::string found = network_of(weights.tensors);
  require<FormatError>(!found.empty(), path, ": expected the tensors of one of ", known_networks(), ", got ",
                       weights.tensors.size(), " tensors",
                       weights.tensors.empty() ? "" : concat(" as ", weights.tensors.front().first));
  return found;
}

/// A model and its part of the file.
struct Loaded {
  Model model;
  NamedTensors tensors;
};

Loaded loaded(const std::string& path, const ModelOptions& options) {
  const WeightsFile weights = load_weights(path);
  Model model;
  model.network = name_of_network(path, weights, options);
  model.config = published_config(model.network, path, weights, options.config);
  model.net = make_network(model.network, model.config);
  model.net->eval();
  const NoGradGuard no_grad;
  const NamedTensors original = with_original_names(model.network, weights.tensors);
  NamedTensors own = without_prefix(original, model.net->state_dict());
  require_finite(path, own);
  try {
    model.net->load_published(own);
  } catch (const FormatError&) {
    throw;
  } catch (const Error& error) {
    throw FormatError(concat(path, ": ", error.what()));
  }
  return {std::move(model), std::move(own)};
}

Metadata metadata_of(const Model& model) { return {{"network", model.network}, {"config", model.config}}; }

}  // namespace

Model load_model(const std::string& path, const ModelOptions& options) { return loaded(path, options).model; }

FrontEnd load_front_end(const Model& model, const std::string& path, Device device) {
  const auto entries = network_entries();
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [&](const NetworkEntry& e) { return e.name == model.network; });
  require<NotImplemented>(entry != entries.end() && entry->make_front_end != nullptr, path, ": ", model.network,
                          " takes no sound here: there is neither a mel front end nor an encoder");
  const NoGradGuard no_grad;
  const NamedTensors original = with_original_names(model.network, load_weights(path).tensors);
  return entry->make_front_end(model.config, without_prefix(original, model.net->state_dict()), device);
}

void save_model(const std::string& path, const Model& model) {
  save_safetensors(path, model.net->state_dict(), metadata_of(model));
}

Model convert_model(const std::string& from, const std::string& to, const ModelOptions& options) {
  Loaded read = loaded(from, options);
  const NoGradGuard no_grad;
  save_safetensors(to, with_folded_weights(read.tensors), metadata_of(read.model));
  return std::move(read.model);
}

}  // namespace polyphase
