// Convolution cases: result and gradients of one operation, each against float64 and against plain arithmetic.

#include <bit>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "golden/compare.hpp"
#include "golden/conv_case.hpp"
#include "golden/plain_conv.hpp"
#include "golden/tolerance.hpp"
#include "ops/conv.hpp"

namespace polyphase::golden {
namespace {

using Values = std::map<std::string, std::vector<double>>;  // by tensor: "y", "grad_x", "grad_weight", "grad_bias"

// ---- the library's results --------------------------------------------------------------------------------------------

Tensor run_forward(const ConvCase& item, const Tensor& x, const Tensor& w, const Tensor& b) {
  const Padding padding(item.padding_left, item.padding_right);
  if (item.is_transpose) {
    return conv_transpose1d(x, w, b,
                            {.stride = item.stride,
                             .padding = padding,
                             .output_padding = item.output_padding,
                             .dilation = item.dilation,
                             .groups = item.groups});
  }
  return conv1d(x, w, b, {.stride = item.stride, .padding = padding, .dilation = item.dilation, .groups = item.groups});
}

Values run_library(const File& file, const ConvCase& item, const Options& options, DType dtype) {
  const auto input = [&](const char* name, bool follows) {
    const Tensor* found = file.content.find(item.name + "/" + name);
    if (found == nullptr) return Tensor{};
    // A clone, because a conversion to the same dtype returns the file's own tensor.
    Tensor copy = found->to(dtype).to(options.device).clone().detach();
    return copy.set_requires_grad(follows);
  };
  const Tensor x = input("x", true);
  const Tensor w = input("weight", true);
  const Tensor b = input("bias", true);
  const Tensor y = run_forward(item, x, w, b);
  Values values{{"y", as_doubles(y)}};
  if (const Tensor grad_y = input("grad_y", false); grad_y.defined()) {
    y.backward(grad_y);
    values["grad_x"] = as_doubles(x.grad());
    values["grad_weight"] = as_doubles(w.grad());
    if (b.defined()) values["grad_bias"] = as_doubles(b.grad());
  }
  return values;
}

// ---- results of plain arithmetic --------------------------------------------------------------------------------------

double round_to(double value, DType dtype) {
  if (dtype == DType::f16) return static_cast<double>(static_cast<float>(Half(static_cast<float>(value))));
  if (dtype == DType::bf16) return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
  return dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

// tf32 keeps 10 bits of a float's 23; rounds to nearest, ties to even.
double round_to_tf32(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  const std::uint32_t half = 0xfffU + ((bits >> 13) & 1U);
  return static_cast<double>(std::bit_cast<float>((bits + half) & ~0x1fffU));
}

struct Inputs {
  std::vector<double> x, w, b, grad_y;
  [[nodiscard]] bool has_gradient() const { return !grad_y.empty(); }
};

Inputs read_inputs(const File& file, const ConvCase& item) {
  const auto read = [&](const char* name, const Shape& shape) {
    const Tensor* found = file.content.find(item.name + "/" + name);
    if (found == nullptr) return std::vector<double>{};
    if (found->shape() != shape)
      file.fail(concat("case ", item.name, ": expected ", name, " ", shape, ", got ", found->shape()));
    return as_doubles(*found);
  };
  const Tensor& x = file.tensor(item.name + "/x");
  const Tensor& w = file.tensor(item.name + "/weight");
  const std::int64_t channels = item.is_transpose ? item.problem.C_out : item.problem.C_in;
  return {as_doubles(x), as_doubles(w), read("bias", {channels}), read("grad_y", file.tensor(item.name + "/y").shape())};
}

// All four results with every sum accumulated in T.
template <class T>
Values sums(const ConvCase& item, const Inputs& inputs) {
  const auto as_t = [](const std::vector<double>& values) { return std::vector<T>(values.begin(), values.end()); };
  const auto as_double = [](const std::vector<T>& values) { return std::vector<double>(values.begin(), values.end()); };
  const ConvProblem& p = item.problem;
  const PlainConv<T> plain(p);
  const std::vector<T> x = as_t(inputs.x), w = as_t(inputs.w), b = as_t(inputs.b), g = as_t(inputs.grad_y);
  Values values;
  values["y"] = as_double(item.is_transpose ? plain.forward(x, w, b) : plain.dgrad(x, w, b));
  if (!inputs.has_gradient()) return values;
  values["grad_x"] = as_double(item.is_transpose ? plain.dgrad(g, w, {}) : plain.forward(g, w, {}));
  values["grad_weight"] = as_double(item.is_transpose ? plain.wgrad(x, g) : plain.wgrad(g, x));
  values["grad_bias"] = as_double(item.is_transpose ? PlainConv<T>::bias_grad(g, p.N, p.C_out, p.L_out)
                                                    : PlainConv<T>::bias_grad(g, p.N, p.C_in, p.L_in));
  return values;
}

template <class Function>
Inputs mapped(Inputs inputs, const Function& function) {
  for (std::vector<double>* values : {&inputs.x, &inputs.w, &inputs.b, &inputs.grad_y}) {
    for (double& value : *values) value = function(value);
  }
  return inputs;
}

Values run_plain(const ConvCase& item, const Inputs& inputs, DType dtype, Precision precision) {
  if (dtype == DType::f64) dtype = DType::f32;  // tolerance_of() scales the error to f64
  const bool is_tf32 = dtype == DType::f32 && precision == Precision::tf32;
  const Inputs rounded = mapped(inputs, [&](double v) { return is_tf32 ? round_to_tf32(v) : round_to(v, dtype); });
  Values values = sums<float>(item, rounded);
  for (auto& [name, results] : values) {
    for (double& value : results) value = round_to(value, dtype);
  }
  return values;
}

// ---- the comparison ---------------------------------------------------------------------------------------------------

// The allowed error of each tensor. `exact` and `magnitude` are the sums of the inputs and of their absolute values in f64.
double tolerance_of(const std::vector<double>& plain, const std::vector<double>& exact, const std::vector<double>& magnitude,
                    DType dtype, Precision precision) {
  const Roundoff roundoff = roundoff_of(dtype, precision);
  const double extra = kExtraRoundings * std::max(roundoff.result, roundoff.input);
  const double plain_error = componentwise_error(plain, exact, magnitude);
  if (dtype != DType::f64) return kTimesPlain * plain_error + extra;
  // f64 cannot be measured against itself. The same sums have similar rounding errors in f32; one more for the golden result.
  return (kTimesPlain + 1) * plain_error * (roundoff.result / roundoff_of(DType::f32, Precision::ieee).result) + extra;
}

Result check_case(const File& file, const std::string& name, const Options& options) {
  const ConvCase item = read_conv_case(file, name);
  const DType dtype = options.dtype.value_or(DType::f32);
  const Inputs inputs = read_inputs(file, item);
  Result worst{.name = name, .what = describe(item, file.tensor(name + "/x").shape(), file.tensor(name + "/weight").shape())};
  Values library;
  try {
    library = run_library(file, item, options, dtype);
  } catch (const NotImplemented& reason) {
    worst.skipped = reason.what();
    return worst;
  }
  const Values plain = run_plain(item, inputs, dtype, options.precision);
  const Values exact = sums<double>(item, inputs);
  const Values magnitude = sums<double>(item, mapped(inputs, [](double v) { return std::abs(v); }));
  for (const char* tensor : {"y", "grad_x", "grad_weight", "grad_bias"}) {
    const Tensor* golden = file.content.find(name + "/" + tensor);
    if (golden == nullptr) continue;
    const auto found = library.find(tensor);
    if (found == library.end()) file.fail(concat("case ", name, ": ", tensor, " needs grad_y, and grad_bias a bias"));
    const double tolerance = tolerance_of(plain.at(tensor), exact.at(tensor), magnitude.at(tensor), dtype, options.precision);
    keep_worse(worst, tensor, componentwise_error(found->second, as_doubles(*golden), magnitude.at(tensor)), tolerance);
  }
  return worst;
}

}  // namespace

bool is_conv_cases(const File& file) {
  for (const auto& [name, text] : file.content.metadata) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_object() && json.contains("op")) return true;
  }
  return false;
}

void check_conv_cases(const File& file, const Options& options, const Report& report) {
  for (const auto& [name, text] : file.content.metadata) report(check_case(file, name, options));
}

}  // namespace polyphase::golden
