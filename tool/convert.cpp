// polyphase convert: writes weights of any format as safetensors. polyphase networks: lists the known networks.

#include <cstdio>
#include <memory>

#include "commands.hpp"
#include "io/weights.hpp"
#include "networks/files/model_file.hpp"
#include "networks/registry.hpp"

namespace polyphase::tool {
namespace {

struct ConvertOptions {
  std::string input, output;
  ModelOptions model{};
  std::string config;
  bool as_is = false;
};

int convert(ConvertOptions& options) {
  if (options.as_is) {
    const WeightsFile file = load_weights(options.input);
    save_safetensors(options.output, file.tensors, file.metadata);
    std::printf("%s: %zu tensors\n", options.output.c_str(), file.tensors.size());
    return 0;
  }
  options.model.config = read_config(options.config);
  const Model model = convert_model(options.input, options.output, options.model);
  std::printf("%s: %s, %lld parameters\n", options.output.c_str(), model.network.c_str(),
              static_cast<long long>(model.net->parameter_count()));
  return 0;
}

int list_networks() {
  for (const NetworkEntry& entry : network_entries())
    std::printf("%-12.*s %.*s\n", static_cast<int>(entry.name.size()), entry.name.data(), static_cast<int>(entry.what.size()),
                entry.what.data());
  return 0;
}

}  // namespace

void add_convert(program::Arguments& app, Action& action) {
  const auto options = std::make_shared<ConvertOptions>();
  program::Arguments command =
      app.add_subcommand("convert",
                         "Writes a published network as safetensors, with its configuration inside: weight "
                         "norm folded, the original's names. IN is\n"
                         "safetensors or its index, a file of torch.save, or ONNX.");
  command.add_option("in", options->input, "the network's file").required();
  command.add_option("out", options->output, "the safetensors file").required();
  add_model_options(command, options->model, options->config);
  command.add_flag("--as-is", options->as_is, "every tensor as the file has it, of any network");
  command.callback([options, &action] { action = [options] { return convert(*options); }; });
}

void add_networks(program::Arguments& app, Action& action) {
  program::Arguments command =
      app.add_subcommand("networks", "Lists the published networks that run, convert and inspect know.");
  command.callback([&action] { action = list_networks; });
}

}  // namespace polyphase::tool
