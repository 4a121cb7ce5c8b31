#pragma once
// The base of optimizers: parameters in groups, the moments of each, and the state that a checkpoint saves.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

class Backend;
class StateReader;
struct OptimizerSlot;
struct StepControl;

/// Parameters with settings of their own; settings that are not set here come from the optimizer's options.
struct ParameterGroup {
  std::vector<Tensor> parameters{};
  std::optional<double> learning_rate{};
  std::optional<double> weight_decay{};
};

/// The state of an optimizer, a scheduler or a weight average, by name: what a checkpoint saves and restores. Tensors share
/// storage with the object; clone() them to keep a snapshot. Every number must be restored with the same bits.
struct OptimizerState {
  std::vector<std::pair<std::string, Tensor>> tensors{};
  std::vector<std::pair<std::string, double>> numbers{};
};

/// Updates parameters from their gradients. The parameters are handles on a module's tensors, so make the optimizer after
/// Module::to and weight_norm, which replace them.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter that has a gradient; the others and their step counts are unchanged. Never waits for the
  /// device. May be recorded by cuda::capture after one eager step: replays keep counting and use the learning rate that is set
  /// when they run. Throws DeviceError if state would have to be created while recording, DTypeError for a parameter of f16 or
  /// bf16 on the host; then nothing has changed.
  void step() { step({}); }
  /// Changes and counts nothing if `skip`, one f64 on the parameters' device, is not 0. For GradScaler. Throws DTypeError,
  /// ShapeError, DeviceError.
  void step(const Tensor& skip);
  /// Drops all gradients.
  void zero_grad();

  /// Number of calls of step() that found a gradient and were not skipped. It is counted on the device: waits for it.
  [[nodiscard]] std::int64_t steps() const;
  /// All parameters, group after group.
  [[nodiscard]] std::vector<Tensor> parameters() const;
  [[nodiscard]] std::size_t group_count() const { return groups_.size(); }
  /// Throws ShapeError if there is no such group.
  [[nodiscard]] double learning_rate(std::size_t group = 0) const;
  /// The initial learning rate of the group, from which schedulers start.
  [[nodiscard]] double initial_learning_rate(std::size_t group = 0) const;
  [[nodiscard]] double weight_decay(std::size_t group = 0) const;
  /// Takes effect with the next step, or replay of a recorded one; does not wait. Throws ShapeError unless `value` is finite
  /// and >= 0, DeviceError inside cuda::capture, where every replay would set the rate again.
  void set_learning_rate(double value, std::size_t group);
  /// Sets all groups.
  void set_learning_rate(double value);

  /// Names: "parameters", "steps", "group0.learning_rate", "group0.initial_learning_rate", "group0.weight_decay", and by the
  /// parameter's position over all groups "3.steps", "3.momentum", "3.second" once it has been updated. Waits for the device.
  [[nodiscard]] OptimizerState state() const;
  /// Restores the result of state() of an optimizer made in the same way; recorded steps continue from there. Throws Error
  /// naming the entry that does not fit; then nothing has changed.
  void load_state(const OptimizerState& state);

  /// Identifies the optimizer through a weak pointer: another optimizer may get the address of a destroyed one.
  [[nodiscard]] const std::shared_ptr<const void>& identity() const { return identity_; }

 protected:
  /// Tensors kept per parameter.
  enum class Moments : unsigned char { none, momentum, momentum_and_second };
  struct Defaults {
    double learning_rate;
    double weight_decay;
  };
  /// A group's current settings.
  struct Group {
    double learning_rate = 0;
    double initial_learning_rate = 0;
    double weight_decay = 0;
    std::size_t begin = 0;  ///< its parameters, as positions over all groups
    std::size_t end = 0;
  };

  /// `name` is the class name for error texts. Throws ShapeError, DTypeError or AutogradError unless every parameter is a
  /// contiguous floating-point leaf, listed once, and the rates are finite and >= 0.
  Optimizer(const char* name, std::vector<ParameterGroup> groups, Defaults defaults, Moments moments);

  /// Updates parameters of one group and device.
  virtual void update(Backend& backend, std::span<const OptimizerSlot> slots, const Group& group,
                      const StepControl& control) = 0;

 private:
  struct Entry {
    Tensor parameter;
    Tensor momentum;
    Tensor second;
  };
  /// The values that kernels read and count, in the memory of one of the parameters' devices.
  struct DeviceState {
    Device device;
    Tensor learning_rates;  // (groups) f64
    Tensor counts;          // (parameters + 1) i64: updates of each; the last one counts calls of step()
  };
  /// The parameters of one group and device that have gradients.
  struct Batch;
  struct LoadedEntry {
    std::int64_t steps = 0;
    Tensor momentum;
    Tensor second;
  };
  void check_new(const Tensor& parameter) const;
  void check_skip(const Tensor& skip) const;
  [[nodiscard]] std::vector<Batch> collect();
  void run(const Batch& batch, const Tensor& skip, bool counts_step);
  void allocate_moments(Entry& entry) const;
  void require_not_recording(const char* what, Device device) const;
  DeviceState& state_on(Device device);
  void write_learning_rates(const DeviceState& state) const;
  [[nodiscard]] std::vector<std::int64_t> read_counts() const;
  [[nodiscard]] const Group& group_at(std::size_t index) const;
  [[nodiscard]] std::vector<Group> read_groups(const StateReader& reader) const;
  [[nodiscard]] std::vector<LoadedEntry> read_entries(const StateReader& reader) const;
  void take(const std::vector<LoadedEntry>& loaded, std::int64_t steps);

  const char* name_;
  Moments moments_;
  std::vector<Group> groups_;
  std::vector<Entry> entries_;
  std::vector<DeviceState> states_;  // nearly always one
  std::shared_ptr<const void> identity_ = std::make_shared<char>();
};

}  // namespace polyphase
