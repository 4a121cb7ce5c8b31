#pragma once
// Modules one after another.

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "layers/module.hpp"

namespace polyphase {

class Sequential;
namespace layers {
/// A single Sequential given to Sequential's constructor is copied, not wrapped.
template <class... M>
inline constexpr bool kIsOneSequential = sizeof...(M) == 1 && (std::same_as<M, Sequential> && ...);
}  // namespace layers

/// Feeds each module's output to the next; a convolution and the activation behind it are one pass where that gives the same
/// bits. Children are named by position: "0.weight", "2.bias", as in PyTorch.
/// A copy shares the children.
class Sequential : public Module {
 public:
  Sequential() = default;
  /// Takes the modules over: `pp::Sequential net(pp::Conv1d({...}), pp::ReLU())`.
  template <std::derived_from<Module>... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneSequential<M...>) explicit Sequential(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// Appends a module. Returns *this.
  template <std::derived_from<Module> M>
  Sequential& push_back(M module) {
    return push_back(std::shared_ptr<Module>(std::make_shared<M>(std::move(module))));
  }
  /// Appends a module that others hold too. Throws Error if it is null.
  Sequential& push_back(std::shared_ptr<Module> module);

  [[nodiscard]] std::size_t size() const { return modules_.size(); }
  /// Throws ShapeError if there is no such position.
  [[nodiscard]] Module& operator[](std::size_t index) const;
  [[nodiscard]] std::span<const std::shared_ptr<Module>> modules() const { return modules_; }
  [[nodiscard]] auto begin() const { return modules_.begin(); }
  [[nodiscard]] auto end() const { return modules_.end(); }

  void visit(Visitor& visitor) override;
  /// Returns x itself when empty.
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  std::vector<std::shared_ptr<Module>> modules_;
};

}  // namespace polyphase
