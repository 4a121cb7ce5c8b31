#pragma once
// What Sequential and ModuleList share: modules held in order, each under its key.

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layers/module.hpp"

namespace polyphase::layers {

/// Base of `Self`, whose name in messages is Self::kName. Children are named by position ("0", "1", ...), as in PyTorch. A copy
/// shares the children.
template <class Self>
class ModuleSequence : public Module {
 public:
  /// Appends a module. Returns *this.
  template <std::derived_from<Module> M>
  Self& push_back(M module) {
    return push_back(std::shared_ptr<Module>(std::make_shared<M>(std::move(module))));
  }
  /// Appends a module that others hold too. Throws Error if it is null.
  Self& push_back(std::shared_ptr<Module> module) {
    require<Error>(module != nullptr, Self::kName, ": module ", size(), " is null");
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
    for (std::size_t i = 0; i < size(); ++i) visitor.module(std::to_string(i), *modules_[i]);
  }

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

/// A single module of a list's own type that is given to its constructor is copied, not wrapped.
template <class Self, class... M>
inline constexpr bool kIsOneOf = sizeof...(M) == 1 && (std::same_as<M, Self> && ...);

}  // namespace polyphase::layers
