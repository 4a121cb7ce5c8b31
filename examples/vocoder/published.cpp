#include "published.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

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

// Where the original registers what a parameter's name begins with: its lists one after another, ours in the order of use.
std::vector<std::int64_t> original_place(const std::string& name) {
  static const std::map<std::string, std::int64_t> kOrder = {{"conv_pre", 0},        {"ups", 1},       {"resblocks", 2},
                                                             {"activation_post", 3}, {"conv_post", 4}, {"convs", 0},
                                                             {"convs1", 0},          {"convs2", 1},    {"activations", 2}};
  std::vector<std::int64_t> place;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = name.find('.', begin)) != std::string::npos; begin = end + 1) {
    const std::string word = name.substr(begin, end - begin);
    const auto known = kOrder.find(word);
    const bool is_number = word.find_first_not_of("0123456789") == std::string::npos;
    place.push_back(known != kOrder.end() ? known->second : is_number ? std::stoll(word) : 0);
  }
  return place;
}

// Our position of each of the generator's parameters in the original's order.
std::vector<std::size_t> generator_positions(pp::Network& generator) {
  const pp::NamedTensors parameters = generator.named_parameters();
  std::vector<std::size_t> positions(parameters.size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  std::stable_sort(positions.begin(), positions.end(), [&](std::size_t a, std::size_t b) {
    return original_place(parameters[a].first) < original_place(parameters[b].first);
  });
  return positions;
}

// PyTorch's AdamW: state.N.{step, exp_avg, exp_avg_sq}, N the parameter's position there; `positions`: its position here.
void load_optimizer(pp::Optimizer& optimizer, const pp::NamedTensors& tensors, const Json& plain,
                    const std::vector<std::size_t>& positions) {
  pp::OptimizerState state;
  for (const auto& [name, value] : optimizer.state().numbers)
    if (!name.ends_with(".steps")) state.numbers.emplace_back(name, value);
  double most = 0;
  const Json states = plain.is_object() ? plain.value("state", Json::object()) : Json::object();
  for (std::size_t n = 0; n < positions.size(); ++n) {
    const std::size_t i = positions[n];
    const std::string entry = pp::concat("state.", n, ".");
    double steps = 0;
    if (const auto number = states.find(std::to_string(n)); number != states.end()) steps = number->value("step", 0.0);
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
  std::vector<std::size_t> in_order(training.discriminator_optimizer().parameters().size());
  std::iota(in_order.begin(), in_order.end(), std::size_t{0});
  const auto load_state = [&](const std::string& name, pp::Optimizer& optimizer, const std::vector<std::size_t>& positions) {
    const pp::NamedTensors own = below(file.tensors, name + ".");
    if (!own.empty()) named_load(path, [&] { load_optimizer(optimizer, own, plain.value(name, Json()), positions); });
  };
  load_state("optim_g", training.generator_optimizer(), generator_positions(training.generator()));
  load_state("optim_d", training.discriminator_optimizer(), in_order);
  return {.steps = plain.value("steps", std::int64_t{0}), .epochs = plain.value("epoch", std::int64_t{0})};
}

pp::NamedTensors discriminator_state(pp::GanTraining& training) {
  pp::NamedTensors all;
  for (const auto& [name, discriminator] : training.discriminators())
    for (const auto& [key, tensor] : discriminator->state_dict()) all.emplace_back(name + "." + key, tensor);
  return all;
}

}  // namespace vocoder
