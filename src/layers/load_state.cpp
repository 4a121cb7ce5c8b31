#include "layers/load_state.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ops/norm.hpp"

namespace polyphase::layers {
namespace {

/// PyTorch 2 saves a weight norm as parametrizations.weight.original0 and 1, earlier versions as weight_g and weight_v. Other
/// names are unchanged.
std::string canonical_name(const std::string& name) {
  static constexpr std::string_view kMarker = "parametrizations.";
  const std::size_t marker = name.rfind(kMarker);
  const std::size_t dot = name.rfind('.');
  if (marker == std::string::npos || dot <= marker + kMarker.size()) return name;
  const std::string_view last = std::string_view(name).substr(dot + 1);
  if (last != "original0" && last != "original1") return name;
  const std::string base = name.substr(marker + kMarker.size(), dot - marker - kMarker.size());
  return name.substr(0, marker) + base + (last == "original0" ? "_g" : "_v");
}

/// The key of g for that of v, and of v for that of g.
std::string other_half(std::string key) {
  char& last = key.back();
  last = last == 'g' ? 'v' : last == 'v' ? 'g' : last == '0' ? '1' : '0';
  return key;
}

void list(std::string& text, const std::string& item) {
  if (!text.empty()) text += ", ";
  text += item;
}

/// g or v of a weight that the module holds folded into one tensor.
struct Half {
  std::string key;
  Tensor source;
};
struct Halves {
  std::string weight;  // the slot's name
  std::optional<Half> g{}, v{};
};

class Planner {
 public:
  Planner(std::span<const Slot> slots, LoadPlan& plan) : plan_(plan) {
    for (const Slot& slot : slots) {
      require<Error>(targets_.emplace(slot.name, *slot.tensor).second, "load_state_dict: two tensors of the module are named ",
                     slot.name);
      names_.emplace(canonical_name(slot.name), slot.name);
    }
  }

  void add(const std::string& key, const Tensor& source) {
    const auto named = names_.find(canonical_name(key));
    const std::string& name = targets_.count(key) != 0 || named == names_.end() ? key : named->second;
    const auto target = targets_.find(name);
    if (target == targets_.end()) {
      if (!add_half(key, source)) list(plan_.unexpected, key);
    } else if (!loaded_.insert(name).second) {
      list_again(key);
    } else {
      copy_to(target->second, name, key, source);
    }
  }

  /// Call after the last add().
  void finish(std::span<const Slot> slots) {
    for (const Halves& halves : halves_) fold(halves);
    for (const Slot& slot : slots)
      if (loaded_.count(slot.name) == 0) list(plan_.missing, concat(slot.name, " ", slot.tensor->shape()));
  }

 private:
  void list_again(const std::string& key) { list(plan_.unexpected, key + " (a second time)"); }

  bool has_shape(const std::string& key, const Tensor& source, const Shape& expected) {
    if (source.defined() && source.shape() == expected) return true;
    list(plan_.misshapen,
         source.defined() ? concat(key, " (expected ", expected, ", got ", source.shape(), ")") : key + " (undefined)");
    return false;
  }

  void copy_to(const Tensor& target, std::string_view name, const std::string& key, const Tensor& source) {
    const bool is_alpha = name.substr(name.rfind('.') + 1) == "alpha" && target.rank() == 1;
    if (is_alpha && source.defined() && source.shape() == Shape{1, target.numel(), 1}) {
      plan_.copies.emplace_back(target, source.reshape(target.shape()));
    } else if (has_shape(key, source, target.shape())) {
      plan_.copies.emplace_back(target, source);
    }
  }

  /// Keeps `source` if it is g or v of a weight.
  bool add_half(const std::string& key, const Tensor& source) {
    const std::string name = canonical_name(key);
    const bool is_g = name.ends_with("_g");
    if (!is_g && !name.ends_with("_v")) return false;
    const std::string weight = name.substr(0, name.size() - 2);
    const auto target = targets_.find(weight);
    if (target == targets_.end() || target->second.rank() < 2) return false;
    auto halves = std::find_if(halves_.begin(), halves_.end(), [&](const Halves& other) { return other.weight == weight; });
    if (halves == halves_.end()) {
      halves_.push_back({weight});
      halves = std::prev(halves_.end());
    }
    std::optional<Half>& half = is_g ? halves->g : halves->v;
    if (half) {
      list_again(key);
    } else {
      half = Half{key, source};
    }
    return true;
  }

  void fold(const Halves& halves) {
    const bool is_first = loaded_.insert(halves.weight).second;
    if (!is_first)
      for (const auto& half : {halves.g, halves.v})
        if (half) list_again(half->key);
    if (!is_first) return;
    const Tensor& target = targets_.at(halves.weight);
    Shape g_shape = Shape::filled(target.rank(), 1);
    g_shape[0] = target.size(0);
    if (!halves.g) list(plan_.missing, concat(other_half(halves.v->key), " ", g_shape));
    if (!halves.v) list(plan_.missing, concat(other_half(halves.g->key), " ", target.shape()));
    const bool fits_g = halves.g && has_shape(halves.g->key, halves.g->source, g_shape);
    const bool fits_v = halves.v && has_shape(halves.v->key, halves.v->source, target.shape());
    if (!fits_g || !fits_v) return;
    const DType dtype = halves.v->source.dtype() == DType::f64 ? DType::f64 : DType::f32;  // 16 bits would be rounded twice
    const auto wide = [&](const Half& half) { return half.source.detach().to(dtype).to(target.device()); };
    // Converted to the dtype of the target immediately, so that the memory of the wide product is free for the next one.
    plan_.copies.emplace_back(target, weight_norm_of(wide(*halves.v), wide(*halves.g)).to(target.dtype()));
  }

  LoadPlan& plan_;
  std::unordered_map<std::string, Tensor> targets_;
  std::unordered_map<std::string, std::string> names_;  // of slots, by their canonical names
  std::unordered_set<std::string> loaded_;
  std::vector<Halves> halves_;
};

}  // namespace

LoadPlan plan_load(std::span<const Slot> slots, const NamedTensors& state) {
  LoadPlan plan;
  Planner planner(slots, plan);
  for (const auto& [key, source] : state) planner.add(key, source);
  planner.finish(slots);
  return plan;
}

}  // namespace polyphase::layers
