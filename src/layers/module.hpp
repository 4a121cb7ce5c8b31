#pragma once
// The base of layers and networks.
//
// A module lists its parts in visit(); everything else (parameters, state_dict, to, train, weight counting) follows from that
// list. So modules are values: they can be members, returned and moved, and nothing is registered by address.
//
//   struct Block : pp::Module {
//     pp::Conv1d conv{{.in_channels = 8, .out_channels = 8, .kernel_size = 3, .padding = 1}};
//     pp::Snake act{8};
//     void visit(pp::Visitor& v) override { v.module("conv", conv); v.module("act", act); }
//     pp::Tensor forward(const pp::Tensor& x) override { return x + act(conv(x)); }
//   };
//
// A copy of a module shares its parameters (Tensor is a handle); clone() of the state is load_state_dict(state_dict()).

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../tensor/tensor.hpp"

namespace polyphase {

class Module;
class ModuleStream;

/// Receives the parts of a module, in the order of its state_dict.
class Visitor {
 public:
  virtual ~Visitor() = default;
  /// A learned tensor; undefined ones (no bias) are skipped. The visitor may replace it, as to(device) does.
  virtual void parameter(std::string_view name, Tensor& tensor) = 0;
  /// State that is saved but not learned.
  virtual void buffer(std::string_view name, Tensor& tensor) = 0;
  /// A child; its keys begin with `name` and a dot. With an empty name they become the module's own keys.
  virtual void module(std::string_view name, Module& child) = 0;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class Module {
 public:
  virtual ~Module() = default;
  /// Lists parameters, buffers and children.
  virtual void visit(Visitor& visitor) = 0;
  [[nodiscard]] virtual Tensor forward(const Tensor& x) = 0;
  [[nodiscard]] Tensor operator()(const Tensor& x) { return forward(x); }
  /// The module's state in a Stream (layers/streaming/stream.hpp), which uses the module. This default throws NotImplemented
  /// with the module's type.
  [[nodiscard]] virtual std::unique_ptr<ModuleStream> make_stream();

  /// Parameters with their PyTorch names ("0.weight", "2.bias"), in order, each tensor once.
  [[nodiscard]] NamedTensors named_parameters();
  [[nodiscard]] std::vector<Tensor> parameters();
  /// Parameters and buffers, detached, sharing storage with the module.
  [[nodiscard]] NamedTensors state_dict();
  /// Copies tensors in by name. A weight norm may have either of PyTorch's spellings, weight_g and weight_v or
  /// parametrizations.weight.original0 and 1; if the module holds a plain `weight`, it gets g * v/||v||. An `alpha` (C) may
  /// have the shape (1, C, 1), as in DAC. Throws Error naming every missing, unexpected (if `strict`) and misshapen key; then
  /// nothing has changed.
  void load_state_dict(const NamedTensors& state, bool strict = true);
  /// Moves or converts every floating-point parameter and buffer. Call before making an optimizer.
  void to(Device device);
  void to(DType dtype);
  /// Sets the training mode of this module and all modules below it; initially on.
  void train(bool mode = true);
  void eval() { train(false); }
  [[nodiscard]] bool is_training() const { return training_; }
  void set_requires_grad(bool value);
  /// Drops all gradients.
  void zero_grad();
  /// Number of elements of all parameters.
  [[nodiscard]] std::int64_t parameter_count();

 private:
  bool training_ = true;
};

}  // namespace polyphase
