#include "published.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/weights.hpp"
#include "layers/weight_norm.hpp"
#include "tensor/error.hpp"

namespace vocoder {
namespace {

using Json = nlohmann::json;

// The tensors whose names begin with `prefix`, without it.
pp::NamedTensors below(const pp::NamedTensors& tensors, const std::string& prefix) {
  pp::NamedTensors found;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  return found;
}

bool has_weight_norm(const pp::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    if (name.ends_with(".weight_g") || name.ends_with(".parametrizations.weight.original0")) return true;
  return false;
}

// Calls `load`, whose errors get the file's name.
template <class Load>
void named_load(const std::string& path, const Load& load) {
  try {
    load();
  } catch (const pp::Error& error) {
    throw pp::FormatError(pp::concat(path, ": ", error.what()));
  }
}

// PyTorch's AdamW: state.N.{step, exp_avg, exp_avg_sq}, N the parameter's position.
void load_optimizer(pp::Optimizer& optimizer, const pp::NamedTensors& tensors, const Json& plain) {
  pp::OptimizerState state;
  for (const auto& [name, value] : optimizer.state().numbers)
    if (!name.ends_with(".steps")) state.numbers.emplace_back(name, value);
  double most = 0;
  const Json states = plain.is_object() ? plain.value("state", Json::object()) : Json::object();
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const std::string entry = pp::concat("state.", i, ".");
    double steps = 0;
    if (const auto number = states.find(std::to_string(i)); number != states.end()) steps = number->value("step", 0.0);
    for (const auto& [name, tensor] : tensors) {
      if (name == entry + "step") steps = tensor.item<double>();
      if (name == entry + "exp_avg") state.tensors.emplace_back(pp::concat(i, ".momentum"), tensor);
      if (name == entry + "exp_avg_sq") state.tensors.emplace_back(pp::concat(i, ".second"), tensor);
    }
    if (steps > 0) state.numbers.emplace_back(pp::concat(i, ".steps"), steps);
    most = std::max(most, steps);
  }
  for (auto& [name, value] : state.numbers)
    if (name == "steps") value = most;
  optimizer.load_state(state);
}

}  // namespace

void load_generator(pp::Network& generator, const std::string& path) {
  const pp::WeightsFile file = pp::load_weights(path);
  pp::NamedTensors tensors = below(file.tensors, "generator.");
  if (tensors.empty()) tensors = file.tensors;
  pp::require_finite(path, tensors);
  named_load(path, [&] {
    if (has_weight_norm(tensors)) return generator.load_state_dict(tensors);
    pp::remove_weight_norm(generator);
    generator.load_published(tensors);
    pp::weight_norm(generator);
  });
}

PublishedRun load_discriminators(pp::GanTraining& training, const std::string& path) {
  const pp::WeightsFile file = pp::load_weights(path);
  pp::require_finite(path, file.tensors);
  for (const auto& [name, discriminator] : training.discriminators())
    named_load(path, [&, name = name, part = discriminator.get()] {
      const pp::NamedTensors own = below(file.tensors, name + ".");
      pp::require<pp::Error>(!own.empty(), "expected tensors ", name, ".*, got none");
      part->load_state_dict(own);
    });
  const auto text = file.metadata.find("plain");
  const Json plain = text == file.metadata.end() ? Json::object() : Json::parse(text->second);
  for (const auto& [name, optimizer] : {std::pair<const char*, pp::Optimizer*>{"optim_g", &training.generator_optimizer()},
                                        {"optim_d", &training.discriminator_optimizer()}}) {
    const pp::NamedTensors own = below(file.tensors, std::string(name) + ".");
    if (!own.empty())
      named_load(path, [&, name = name, optimizer = optimizer] { load_optimizer(*optimizer, own, plain.value(name, Json())); });
  }
  return {.steps = plain.value("steps", std::int64_t{0}), .epochs = plain.value("epoch", std::int64_t{0})};
}

pp::NamedTensors discriminator_state(pp::GanTraining& training) {
  pp::NamedTensors all;
  for (const auto& [name, discriminator] : training.discriminators())
    for (const auto& [key, tensor] : discriminator->state_dict()) all.emplace_back(name + "." + key, tensor);
  return all;
}

}  // namespace vocoder
