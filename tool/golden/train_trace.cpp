// Training traces: a small network trained for some steps, compared after the first step and at the end.

#include <charconv>
#include <memory>

#include "golden/compare.hpp"
#include "golden/forms.hpp"
#include "golden/network.hpp"
#include "golden/tolerance.hpp"
#include "layers/losses.hpp"
#include "optim/adam.hpp"
#include "optim/sgd.hpp"

namespace polyphase::golden {
namespace {

// The metadata, with PyTorch's defaults for missing entries.
class Settings {
 public:
  explicit Settings(const File& file) : file_(file) {}

  [[nodiscard]] double number(const std::string& name, double standard) const {
    const auto found = file_.content.metadata.find(name);
    return found == file_.content.metadata.end() ? standard : parse(name, found->second);
  }
  [[nodiscard]] double number(const std::string& name) const { return parse(name, file_.metadata(name)); }
  [[nodiscard]] bool flag(const std::string& name) const {
    const auto found = file_.content.metadata.find(name);
    if (found == file_.content.metadata.end() || found->second == "false" || found->second == "False") return false;
    if (found->second != "true" && found->second != "True") file_.fail(name + ": expected true or false, got " + found->second);
    return true;
  }
  [[nodiscard]] AdamBetas betas() const {
    const auto found = file_.content.metadata.find("betas");
    if (found == file_.content.metadata.end()) return {number("beta1", 0.9), number("beta2", 0.999)};
    const std::string& text = found->second;  // "0.9, 0.999", with or without brackets
    const std::size_t comma = text.find(',');
    const std::size_t first = text.find_first_not_of("[( ");
    const std::size_t second = text.find_first_not_of(" ", comma + 1);
    if (comma == std::string::npos || first > comma || second == std::string::npos)
      file_.fail("betas: expected two numbers, got " + text);
    const std::size_t end = text.find_first_of("]) ", second);
    return {parse("betas", text.substr(first, comma - first)), parse("betas", text.substr(second, end - second))};
  }

 private:
  double parse(const std::string& name, const std::string& text) const {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data(), end, value);
    if (result.ec != std::errc{} || result.ptr != end) file_.fail(name + ": expected a number, got '" + text + "'");
    return value;
  }
  const File& file_;
};

std::unique_ptr<Optimizer> make_optimizer(const File& file, const std::vector<Tensor>& parameters) {
  const Settings s(file);
  const std::string& name = file.metadata("optimizer");
  if (name == "sgd") {
    return std::make_unique<SGD>(parameters, SgdOptions{.learning_rate = s.number("learning_rate"),
                                                        .momentum = s.number("momentum", 0),
                                                        .dampening = s.number("dampening", 0),
                                                        .weight_decay = s.number("weight_decay", 0),
                                                        .nesterov = s.flag("nesterov")});
  }
  const double epsilon = s.number("eps", s.number("epsilon", 1e-8));
  if (name == "adam") {
    return std::make_unique<Adam>(parameters, AdamOptions{.learning_rate = s.number("learning_rate", 1e-3),
                                                          .betas = s.betas(),
                                                          .epsilon = epsilon,
                                                          .weight_decay = s.number("weight_decay", 0)});
  }
  if (name == "adamw") {
    return std::make_unique<AdamW>(parameters, AdamWOptions{.learning_rate = s.number("learning_rate", 1e-3),
                                                            .betas = s.betas(),
                                                            .epsilon = epsilon,
                                                            .weight_decay = s.number("weight_decay", 1e-2)});
  }
  file.fail("optimizer: expected sgd, adam or adamw, got " + name);
}

Tensor loss_of(const File& file, const Tensor& output, const Tensor& target) {
  const std::string& name = file.metadata("loss");
  if (name == "mse") return mse_loss(output, target);
  if (name == "l1") return l1_loss(output, target);
  if (name == "smooth_l1") return smooth_l1_loss(output, target, Settings(file).number("beta", 1));
  file.fail("loss: expected mse, l1 or smooth_l1, got " + name);
}

// The worst of several tensors; tensors that are zero except for rounding are compared with the norm of the largest.
Result compare_all(const File& file, const std::string& name, const NamedTensors& results, double tolerance) {
  const NamedTensors expected = file.under(name + "/");
  double largest = 0;
  for (const auto& [key, tensor] : expected) largest = std::max(largest, norm_of(as_doubles(tensor)));
  Result worst{.name = name};
  for (const auto& [key, tensor] : expected) {
    const auto same_name = [&, &key = key](const auto& entry) { return entry.first == key; };
    const auto found = std::find_if(results.begin(), results.end(), same_name);
    if (found == results.end()) file.fail("the network has no " + name + "/" + key);
    keep_worse(worst, key, relative_error(as_doubles(found->second), as_doubles(tensor), kSmallestNorm * largest), tolerance);
  }
  return worst;
}

double trace_tolerance(DType dtype, Precision precision) {
  if (dtype == DType::f64) return kTraceF64;
  return precision == Precision::tf32 ? kTraceTf32 : kTraceF32;
}

Sequential make_network(const File& file, DType dtype, Device device) {
  const auto has_bias = [&](std::size_t index) { return file.content.find(concat("init/", index, ".bias")) != nullptr; };
  Sequential network = parse_network(file.metadata("net"), has_bias);
  // Buffers of normalisations have their defaults if the file does not contain them.
  NamedTensors state = network.state_dict();
  for (auto& [key, tensor] : state) {
    if (const Tensor* initial = file.content.find("init/" + key)) tensor = initial->to(tensor.dtype());
  }
  const NamedTensors initial = file.under("init/");
  for (const auto& [key, tensor] : network.named_parameters()) {
    if (file.content.find("init/" + key) == nullptr) file.fail("tensor init/" + key + " is missing");
  }
  for (const auto& [key, tensor] : initial) {
    const auto same_name = [&, &key = key](const auto& entry) { return entry.first == key; };
    if (std::none_of(state.begin(), state.end(), same_name)) file.fail("the network has no " + key);
  }
  network.load_state_dict(state);
  network.to(dtype);
  network.to(device);
  return network;
}

}  // namespace

bool is_train_trace(const File& file) { return file.content.metadata.contains("net"); }

void check_train_trace(const File& file, const Options& options, const Report& report) {
  const DType dtype = network_dtype(options);
  const double tolerance = trace_tolerance(dtype, options.precision);
  Sequential network = make_network(file, dtype, options.device);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(file, network.parameters());
  const Tensor x = file.tensor("x").to(dtype).to(options.device);
  const Tensor target = file.tensor("target").to(dtype).to(options.device);
  const auto steps = static_cast<std::int64_t>(Settings(file).number("steps"));
  if (steps < 1 || file.tensor("losses").numel() != steps) {
    file.fail(concat("expected one loss for each of ", steps, " steps, got ", file.tensor("losses").shape()));
  }

  const auto compare = [&](const std::string& name, const std::vector<double>& result) {
    Result worst{.name = name};
    keep_worse(worst, name, relative_error(result, as_doubles(file.tensor(name))), tolerance);
    return worst;
  };
  const auto report_as = [&](Result result, const std::string& what) {
    result.what = what;
    report(result);
  };
  const std::string how = concat(file.metadata("optimizer"), " ", file.metadata("loss"), " ", dtype);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    const Tensor output = network(x);
    const Tensor loss = loss_of(file, output, target);
    losses.push_back(loss.item<double>());
    optimizer->zero_grad();
    loss.backward();
    if (step == 0) {
      report_as(compare("first_output", as_doubles(output)), how);
      NamedTensors gradients;
      for (const auto& [key, parameter] : network.named_parameters()) gradients.emplace_back(key, parameter.grad());
      report_as(compare_all(file, "first_grad", gradients, tolerance), how);
    }
    optimizer->step();
  }
  report_as(compare("losses", losses), concat(how, ", ", steps, " steps"));
  report_as(compare_all(file, "final", network.state_dict(), tolerance), concat(how, ", ", steps, " steps"));
}

}  // namespace polyphase::golden
