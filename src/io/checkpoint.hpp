#pragma once
// The whole state of a training run in one file, so that it continues as if it had never stopped.
//
//   pp::save_checkpoint("run.ckpt", {.model = net.state_dict(),
//                                    .states = {{"optimizer", optimizer.state()}, {"schedule", schedule.state()}},
//                                    .generators = {{"default", pp::default_generator().state()}},
//                                    .step = step});
//   ...
//   const pp::Checkpoint saved = pp::load_checkpoint("run.ckpt");
//   net.load_state_dict(saved.model);
//   optimizer.load_state(saved.state("optimizer"));
//   schedule.load_state(saved.state("schedule"));
//   pp::default_generator().set_state(saved.generator("default"));
//
// The file is a safetensors file (tensors model/NAME and state/OWNER/NAME; the rest is JSON in its metadata), so other programs
// can read the weights.

#include <cstdint>
#include <map>
#include <string>

#include "../layers/module.hpp"
#include "../optim/optimizer.hpp"
#include "../tensor/random.hpp"

namespace polyphase {

/// The contents of a checkpoint. The names in the maps are the user's; those of `states` must not contain '/'.
struct Checkpoint {
  NamedTensors model{};                            ///< Module::state_dict
  std::map<std::string, OptimizerState> states{};  ///< optimizers, schedulers, weight averages: their state()
  std::map<std::string, GeneratorState> generators{};
  std::int64_t step = 0;
  std::map<std::string, double> numbers{};     ///< the user's own: best loss, epoch, ...
  std::map<std::string, std::string> texts{};  ///< the user's own: configuration, notes, ...

  /// The entry of this name. Throws Error with the name.
  [[nodiscard]] const OptimizerState& state(const std::string& name) const;
  [[nodiscard]] const GeneratorState& generator(const std::string& name) const;
  [[nodiscard]] double number(const std::string& name) const;
  [[nodiscard]] const std::string& text(const std::string& name) const;
};

/// Writes the checkpoint. The file appears complete or not at all, so a crash or a full disk during a save leaves the last
/// checkpoint unchanged. Tensors and numbers keep their bits. Throws FormatError as save_safetensors does.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

/// Reads a checkpoint; tensors are on the CPU and refer to the mapped file until they are copied. Throws FormatError with the
/// file's name if it is malformed or not a checkpoint.
[[nodiscard]] Checkpoint load_checkpoint(const std::string& path);

}  // namespace polyphase
