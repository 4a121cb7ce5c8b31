#pragma once
// What the command lines of the examples that train share.

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cpu/threads.hpp"
#include "program/program.hpp"
#include "tensor/device.hpp"

namespace training {

struct SharedOptions {
  int threads = 0;
  std::string device = "cpu";
};

inline void add_shared(polyphase::program::Arguments& app, SharedOptions& shared) {
  app.add_option("--threads", shared.threads, "CPU threads (default: all cores)").in_range(1, 1024);
  app.add_option("--device", shared.device, "where to compute: cpu, cuda or cuda:1").shows_default();
}

// The names of the options on the command line, also as the checkpoints of superres have them.
inline std::set<std::string> given_options(const polyphase::program::Arguments& app) {
  std::set<std::string> names;
  for (const polyphase::program::Option& option : app.given()) {
    std::string name = option.name();
    std::replace(name.begin(), name.end(), '-', '_');
    names.insert(option.name());
    names.insert(name);  // the model's names in a checkpoint have underscores
  }
  return names;
}

// The options that say how a run is computed and not what it is, as words for a shell.
inline std::vector<std::string> repeated_options(const polyphase::program::Arguments& app) {
  std::vector<std::string> words;
  for (const char* name : {"--device", "--threads", "--check-every", "--cache-mb"}) {
    const polyphase::program::Option option = app.option(name);
    if (option.count() > 0) words.insert(words.end(), {name, option.as_text()});
  }
  return words;
}

// A subcommand, its own options added already, with those that all have. It acts on the device and with the threads asked for.
template <class Command>
void add_command(
    polyphase::program::Arguments& app, polyphase::program::Action& action, const std::shared_ptr<Command>& command,
    int (*act)(const Command&), const std::function<void()>& check = [] {}) {
  const auto shared = std::make_shared<SharedOptions>();
  add_shared(app, *shared);
  app.callback([&action, command, shared, act, check] {
    const auto where = polyphase::program::as_usage([&] {
      check();
      return polyphase::Device::parse(shared->device);
    });
    action = [command, shared, act, where] {
      if (shared->threads > 0) polyphase::set_num_threads(shared->threads);
      const polyphase::DeviceGuard device(where);
      return act(*command);
    };
  });
}

}  // namespace training
