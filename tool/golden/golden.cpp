#include "golden/golden.hpp"

#include "golden/forms.hpp"

namespace polyphase::golden {

const Tensor& File::tensor(const std::string& name) const {
  const Tensor* found = content.find(name);
  if (found == nullptr) fail("tensor " + name + " is missing");
  return *found;
}

const std::string& File::metadata(const std::string& name) const {
  const auto found = content.metadata.find(name);
  if (found == content.metadata.end()) fail(name + " is missing in the metadata");
  return found->second;
}

NamedTensors File::under(const std::string& prefix) const {
  NamedTensors found;
  for (const auto& [name, tensor] : content.tensors) {
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  }
  if (found.empty()) fail("there are no tensors under " + prefix);
  return found;
}

void File::fail(const std::string& what) const { throw FormatError("check: " + path + ": " + what); }

DType network_dtype(const Options& options) {
  const DType dtype = options.dtype.value_or(DType::f64);
  require<NotImplemented>(dtype == DType::f32 || dtype == DType::f64,
                          "it is checked in f32 and f64 only, there is no tolerance for ", dtype);
  return dtype;
}

namespace {

void check_any(const File& file, const Options& options, const Report& report) {
  if (is_network(file)) return check_network(file, options, report);
  if (is_generator(file)) return check_generator(file, options, report);
  if (is_train_trace(file)) return check_train_trace(file, options, report);
  if (is_conv_cases(file)) return check_conv_cases(file, options, report);
  file.fail(
      "not a golden file: expected metadata of convolution cases (op), a training trace (net), a generator (config) or a "
      "network (network)");
}

}  // namespace

std::vector<Result> check_file(const std::string& path, const Options& options,
                               const std::function<void(const Result&)>& report) {
  const File file{path, load_safetensors(path)};
  const AlgorithmGuard algorithm(options.algorithm);
  const PrecisionGuard precision(options.precision);
  std::vector<Result> results;
  const Report keep = [&](const Result& result) {
    results.push_back(result);
    if (report) report(result);
  };
  try {
    check_any(file, options, keep);
  } catch (const NotImplemented& reason) {
    keep({.name = "all", .what = "the network", .skipped = reason.what()});
  }
  return results;
}

}  // namespace polyphase::golden
