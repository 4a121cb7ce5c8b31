#pragma once
// Reads an OptimizerState entry by entry, with errors that name the entry. Not for users.

#include <string>

#include "optim/optimizer.hpp"

namespace polyphase {

/// Looks up entries by name; `owner` ("Adam") begins every error text.
class StateReader {
 public:
  StateReader(const char* owner, const OptimizerState& state) : owner_(owner), state_(state) {}
  [[nodiscard]] bool has_number(const std::string& name) const { return find_number(name) != nullptr; }
  /// Throws Error if it is missing.
  [[nodiscard]] double number(const std::string& name) const;
  /// A number that counts something. Throws Error unless it is an integer >= 0.
  [[nodiscard]] std::int64_t count(const std::string& name) const;
  /// A fresh copy with the dtype and device of `like`. Throws Error if it is missing or has another shape.
  [[nodiscard]] Tensor tensor(const std::string& name, const Tensor& like) const;
  /// Throws Error if the state does not have these numbers of entries.
  void expect_size(std::size_t tensors, std::size_t numbers) const;

 private:
  [[nodiscard]] const double* find_number(const std::string& name) const;

  const char* owner_;
  const OptimizerState& state_;
};

}  // namespace polyphase
