#pragma once
// The base of optimizers: parameters in groups, the moments kept for each, and the state a checkpoint saves.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase {

class Backend;
class StateReader;
struct OptimizerSlot;

/// Parameters with settings of their own; what is not set here is taken from the optimizer's options.
struct ParameterGroup {
  std::vector<Tensor> parameters{};
  std::optional<double> learning_rate{};
  std::optional<double> weight_decay{};
};

/// Everything an optimizer, a scheduler or a weight average is, by name: what a checkpoint saves and restores.
/// Tensors share storage with the object; clone() them to keep a snapshot. Every number must come back with the same bits.
struct OptimizerState {
  std::vector<std::pair<std::string, Tensor>> tensors{};
  std::vector<std::pair<std::string, double>> numbers{};
};

/// Changes parameters along their gradients. The parameters are handles on a module's tensors, so make the optimizer after
/// Module::to and weight_norm, which replace them.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient; the others, and their step counts, stay as they are.
  void step();
  /// Drops all gradients.
  void zero_grad();

  /// Calls of step() so far.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] std::size_t group_count() const { return groups_.size(); }
  /// Throws ShapeError if there is no such group.
  [[nodiscard]] double learning_rate(std::size_t group = 0) const;
  /// The learning rate the group was made with: what schedulers start from.
  [[nodiscard]] double initial_learning_rate(std::size_t group = 0) const;
  [[nodiscard]] double weight_decay(std::size_t group = 0) const;
  /// Throws ShapeError unless `value` is finite and >= 0.
  void set_learning_rate(double value, std::size_t group);
  /// Sets all groups.
  void set_learning_rate(double value);

  /// Names: "parameters", "steps", "group0.learning_rate", "group0.initial_learning_rate", "group0.weight_decay", and by the
  /// parameter's position over all groups "3.steps", "3.momentum", "3.second" once it has been updated.
  [[nodiscard]] OptimizerState state() const;
  /// Restores what state() gave, for an optimizer made alike. Throws Error naming the entry that does not fit; then nothing has
  /// changed.
  void load_state(const OptimizerState& state);

 protected:
  /// Tensors kept for each parameter.
  enum class Moments : unsigned char { none, momentum, momentum_and_second };
  struct Defaults {
    double learning_rate;
    double weight_decay;
  };
  /// A group's settings as they are now.
  struct Group {
    double learning_rate = 0;
    double initial_learning_rate = 0;
    double weight_decay = 0;
    std::size_t begin = 0;  ///< its parameters, as positions over all groups
    std::size_t end = 0;
  };

  /// `name` is the class's, for error texts. Throws ShapeError, DTypeError or AutogradError unless every parameter is a
  /// contiguous floating-point leaf, listed once, and the rates are finite and >= 0.
  Optimizer(const char* name, std::vector<ParameterGroup> groups, Defaults defaults, Moments moments);

  /// Updates parameters of one group and device that are all at their `step`-th update, counted from 1.
  virtual void update(Backend& backend, std::span<const OptimizerSlot> slots, const Group& group, std::int64_t step) = 0;

 private:
  struct Entry {
    Tensor parameter;
    Tensor momentum;
    Tensor second;
    std::int64_t steps = 0;
  };
  void check_new(const Tensor& parameter) const;
  void step_group(const Group& group);
  void allocate_moments(Entry& entry) const;
  [[nodiscard]] const Group& group_at(std::size_t index) const;
  [[nodiscard]] std::vector<Group> read_groups(const StateReader& reader) const;
  [[nodiscard]] std::vector<Entry> read_entries(const StateReader& reader) const;

  const char* name_;
  Moments moments_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;
  std::int64_t steps_ = 0;
};

}  // namespace polyphase
