#pragma once
// The common part of Sequential and ModuleList: modules in order, each with its key.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../layers/module.hpp"

namespace polyphase {
namespace layers {

/// A module with a name for its keys. Made by named().
template <std::derived_from<Module> M>
struct Named {
  std::string name;
  M module;
};

}  // namespace layers

/// Sets a module's name in the Sequential, ModuleList or Residual that contains it, so that the keys are those of a published
/// network: `pp::Sequential(pp::named("conv", pp::Conv1d({...})), pp::ReLU())` has "conv.weight". Names may contain dots
/// ("convs1.0"). With an empty name the module's keys become keys of its parent.
template <std::derived_from<Module> M>
[[nodiscard]] layers::Named<M> named(std::string name, M module) {
  return {std::move(name), std::move(module)};
}

namespace layers {

template <class T>
inline constexpr bool kIsNamed = false;
template <class M>
inline constexpr bool kIsNamed<Named<M>> = true;
/// The elements of a list of modules: modules, with or without names.
template <class T>
concept Child = std::derived_from<T, Module> || kIsNamed<T>;

/// Base of `Self`, whose name in messages is Self::kName. Children without a name of their own are named by position ("0", "1",
/// ...), as in PyTorch. A copy shares the children.
template <class Self>
class ModuleSequence : public Module {
 public:
  /// Appends a module. Returns *this.
  template <std::derived_from<Module> M>
  Self& push_back(M module) {
    return push_back(std::shared_ptr<Module>(std::make_shared<M>(std::move(module))));
  }
  /// Appends a module under a name of its own: `list.push_back(pp::named("conv", pp::Conv1d({...})))`. Throws Error if another
  /// module has the name.
  template <std::derived_from<Module> M>
  Self& push_back(Named<M> child) {
    return push_back(std::move(child.name), std::make_shared<M>(std::move(child.module)));
  }
  /// Appends a shared module. Throws Error if it is null or if another module has its name.
  Self& push_back(std::shared_ptr<Module> module) { return push_back(std::to_string(size()), std::move(module)); }
  Self& push_back(std::string name, std::shared_ptr<Module> module) {
    require<Error>(module != nullptr, Self::kName, ": module ", size(), " is null");
    const auto same = name.empty() ? names_.end() : std::find(names_.begin(), names_.end(), name);
    require<Error>(same == names_.end(), Self::kName, ": expected names that differ, got \"", name, "\" for modules ",
                   same - names_.begin(), " and ", size());
    names_.push_back(std::move(name));
    modules_.push_back(std::move(module));
    return static_cast<Self&>(*this);
  }

  [[nodiscard]] std::size_t size() const { return modules_.size(); }
  /// Throws ShapeError if there is no such position.
  [[nodiscard]] Module& operator[](std::size_t index) const {
    require<ShapeError>(index < size(), Self::kName, ": expected a position below ", size(), ", got ", index);
    return *modules_[index];
  }
  [[nodiscard]] std::span<const std::shared_ptr<Module>> modules() const { return modules_; }
  /// Each element is a std::shared_ptr<Module>.
  [[nodiscard]] auto begin() const { return modules_.begin(); }
  [[nodiscard]] auto end() const { return modules_.end(); }

  void visit(Visitor& visitor) override {
    for (std::size_t i = 0; i < size(); ++i) visitor.module(names_[i], *modules_[i]);
  }

 private:
  std::vector<std::string> names_;  // one for each of modules_
  std::vector<std::shared_ptr<Module>> modules_;
};

/// A single module of a list's own type is copied by its constructor, not wrapped.
template <class Self, class... M>
inline constexpr bool kIsOneOf = sizeof...(M) == 1 && (std::same_as<M, Self> && ...);

}  // namespace layers
}  // namespace polyphase
