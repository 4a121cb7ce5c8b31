// polyphase inspect: lists a published network's layers, memory and work.

#include <cstdio>
#include <map>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "autograd/no_grad.hpp"
#include "commands.hpp"
#include "layers/activations.hpp"
#include "layers/antialiased_activation.hpp"
#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/containers/sum_of_branches.hpp"
#include "layers/fused.hpp"
#include "layers/streaming/stream.hpp"
#include "networks/files/model_file.hpp"
#include "ops/mac_counter.hpp"
#include "program/text.hpp"
#include "run/input.hpp"
#include "tensor/memory.hpp"

namespace polyphase::tool {
namespace {

template <class... Types>
bool is_any_of(const Module& module) {
  return ((typeid(module) == typeid(Types)) || ...);
}

/// What runs in one pass over memory in inference, and why other activations do not.
class Passes {
 public:
  explicit Passes(Module& net) { add(net); }

  /// What is fused with a module, or nothing.
  [[nodiscard]] std::string fused_with(const Module& module) const {
    const auto found = fused_.find(&module);
    return found == fused_.end() ? "" : found->second;
  }
  /// (type, reason) -> how many activations are passes of their own.
  [[nodiscard]] const std::map<std::pair<std::string, std::string>, int>& alone() const { return alone_; }

 private:
  struct Children : Visitor {
    std::vector<Module*> modules;
    void parameter(std::string_view, Tensor&) override {}
    void buffer(std::string_view, Tensor&) override {}
    void module(std::string_view, Module& child) override { modules.push_back(&child); }
  };

  void add(Module& module) {
    if (typeid(module) == typeid(Residual)) return add_all(static_cast<Residual&>(module).block().modules(), true);
    if (typeid(module) == typeid(Sequential)) return add_all(static_cast<Sequential&>(module).modules(), false);
    Children children;
    module.visit(children);
    for (Module* child : children.modules) add(*child);
    if (typeid(module) != typeid(MeanOfBranches) && typeid(module) != typeid(SumOfBranches)) return;
    const NoGradGuard no_grad;
    for (std::size_t i = 1; i < children.modules.size(); ++i)
      if (const Module* conv = layers::adding_convolution(*children.modules[i]))
        fused_[conv] += ", which adds the branches before";
  }

  void add_all(layers::Modules modules, bool is_residual) {
    for (const layers::Pass& pass : layers::passes_of(modules, is_residual)) {
      if (pass.is_unit) {
        for (const std::size_t i : {std::size_t{1}, std::size_t{3}})
          fused_[modules[i].get()] =
              concat("reads ", layers::short_type_name(*modules[i - 1]), i == 1 ? "" : ", adds the residual",
                     "; one kernel for both where residual_unit() has one");
        continue;
      }
      const Module& main = *modules[pass.main];
      std::string text = pass.main > pass.first ? "reads " + layers::short_type_name(*modules[pass.first]) : "";
      if (pass.first + pass.length > pass.main + 1)
        text += concat(text.empty() ? "" : ", ", "then ", layers::short_type_name(*modules[pass.main + 1]));
      if (pass.adds_residual) text += concat(text.empty() ? "" : ", ", "adds the residual");
      if (!text.empty()) fused_[&main] = text;
      if (const std::string reason = pass.length == 1 ? why_alone(main) : ""; !reason.empty())
        ++alone_[{layers::short_type_name(main), reason}];
    }
    for (const auto& module : modules) add(*module);
  }

  /// Why an activation that is a pass is not part of another; empty for other modules.
  static std::string why_alone(const Module& module) {
    if (is_any_of<ReLU, LeakyReLU>(module)) return "no convolution is next to it";
    if (is_any_of<Tanh, Snake, SnakeBeta>(module)) return "a convolution applies it to its sums, and none is before it";
    if (is_any_of<ELU, GELU, SiLU, Sigmoid, Clamp, AntialiasedActivation>(module)) return "no convolution applies it";
    return "";
  }

  std::map<const Module*, std::string> fused_;
  std::map<std::pair<std::string, std::string>, int> alone_;
};

/// Prints a line for each module that has tensors of its own.
class LayerPrinter : public Visitor {
 public:
  void print(Module& module, const std::string& name) {
    LayerPrinter inside(passes_, name);
    module.visit(inside);
    if (!inside.shapes_.empty()) {
      const std::string fused = passes_.fused_with(module);
      std::printf("  %-44s %-18s %s%s%s\n", name.c_str(), layers::short_type_name(module).c_str(), inside.shapes_.c_str(),
                  fused.empty() ? "" : "; ", fused.c_str());
    }
    for (const auto& [child, below] : inside.children_) print(*below, child);
  }

  explicit LayerPrinter(const Passes& passes, std::string name = "") : passes_(passes), name_(std::move(name)) {}
  void parameter(std::string_view name, Tensor& tensor) override { add(name, tensor); }
  void buffer(std::string_view name, Tensor& tensor) override { add(name, tensor); }
  void module(std::string_view name, Module& child) override {
    std::string whole = name_;
    if (!name.empty()) whole += concat(whole.empty() ? "" : ".", name);
    children_.emplace_back(whole, &child);
  }

 private:
  void add(std::string_view name, const Tensor& tensor) {
    if (tensor.defined()) shapes_ += concat(shapes_.empty() ? "" : ", ", name, " ", tensor.shape());
  }

  const Passes& passes_;
  std::string name_;
  std::string shapes_;
  std::vector<std::pair<std::string, Module*>> children_;
};

Tensor zeros_for(const NetworkFormat& format, std::int64_t frames) {
  return Tensor::zeros({1, format.rows, frames}, {.dtype = format.input == NetworkInput::codes ? DType::i64 : DType::f32});
}

double macs_of(Network& net, std::int64_t frames) {
  const ops::MacCounter counter;
  static_cast<void>(net(zeros_for(net.format(), frames)));
  return counter.count();
}

std::string mib(std::size_t bytes) { return program::fixed(static_cast<double>(bytes) / 1048576, 1) + " MiB"; }

void print_reach(Network& net) {
  const NetworkFormat& format = net.format();
  try {
    const ReceptiveField field = receptive_field(net);
    const std::string left = field.left >= -ModuleStream::kAllBefore / 2 ? "all" : std::to_string(field.left);
    std::printf("sees        %s frames before its own, %lld after it\n", left.c_str(), static_cast<long long>(field.right));
    const auto latency = static_cast<double>(Stream(net).latency() * format.samples_per_frame);
    if (format.sampling_rate > 0)
      std::printf("latency     %.0f ms of a stream\n", 1000 * latency / static_cast<double>(format.sampling_rate));
  } catch (const NotImplemented& error) {
    std::printf("sees        the whole input: %s\n", error.what());
  }
}

/// The work of one frame in the middle: a longer input minus a shorter one, so that the ends do not count.
void print_work(Network& net) {
  const NetworkFormat& format = net.format();
  const NoGradGuard no_grad;
  const std::int64_t few = 64, more = 96;
  const double a_frame = (macs_of(net, more) - macs_of(net, few)) / static_cast<double>(more - few);
  std::printf("work        %.0f thousand multiply-adds a sample",
              a_frame / static_cast<double>(format.samples_per_frame) / 1e3);
  if (format.sampling_rate > 0)
    std::printf(", %.2f thousand million a second of audio",
                a_frame * static_cast<double>(format.sampling_rate) / static_cast<double>(format.samples_per_frame) / 1e9);
  std::printf("\n");
  std::size_t own = 0;
  for (const auto& [name, tensor] : net.state_dict()) own += static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
  const std::size_t before = memory_stats(Device::cpu()).live_bytes;
  reset_peak_memory(Device::cpu());
  static_cast<void>(net(zeros_for(format, more)));
  std::printf("memory      %s of weights, %s more for %lld frames in one call\n", mib(own).c_str(),
              mib(memory_stats(Device::cpu()).peak_bytes - before).c_str(), static_cast<long long>(more));
}

struct InspectOptions {
  std::string model;
  ModelOptions model_options{};
  std::string config;
};

int inspect(InspectOptions& options) {
  options.model_options.config = read_config(options.config);
  const Model model = load_model(options.model, options.model_options);
  Network& net = *model.net;
  const NetworkFormat& format = net.format();
  std::printf("network     %s\n", model.network.c_str());
  std::printf("input       %s (N, %lld, frames)\n", word_of(format.input).c_str(), static_cast<long long>(format.rows));
  std::printf("output      audio (N, %lld, samples), %lld samples a frame", static_cast<long long>(format.audio_channels),
              static_cast<long long>(format.samples_per_frame));
  if (format.sampling_rate > 0) std::printf(", %lld Hz", static_cast<long long>(format.sampling_rate));
  std::printf("\nparameters  %s\n", program::grouped(net.parameter_count()).c_str());
  print_reach(net);
  print_work(net);
  const Passes passes(net);
  std::printf("layers, and what is fused with them in inference\n");
  LayerPrinter(passes).print(net, "");
  if (!passes.alone().empty()) std::printf("activations that are passes of their own\n");
  for (const auto& [what, count] : passes.alone())
    std::printf("  %3d %-21s %s\n", count, what.first.c_str(), what.second.c_str());
  return 0;
}

}  // namespace

void add_inspect(program::Arguments& app, Action& action) {
  const auto options = std::make_shared<InspectOptions>();
  program::Arguments command = app.add_subcommand(
      "inspect", "Prints a published network's input and output, its context, work and memory, and its layers.");
  command.add_option("model", options->model, "the network's file").required();
  add_model_options(command, options->model_options, options->config);
  command.callback([options, &action] { action = [options] { return inspect(*options); }; });
}

}  // namespace polyphase::tool
