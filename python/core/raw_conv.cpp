#include "raw_conv.hpp"

#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "casters.hpp"
#include "conv/autotune.hpp"
#include "core.hpp"
#include "cuda/cuda.hpp"
#include "cuda/memory/workspace.hpp"
#include "cuda/runtime/dry_run.hpp"
#include "device/backend.hpp"
#include "ops/conv/problem.hpp"

namespace polyphase::python {
namespace {

/// A tensor whose elements nobody reads: all are one number.
Tensor shaped(const Shape& shape, DType dtype) {
  static const Storage element(sizeof(double), Device::cpu());
  return Tensor::over(element, shape, Shape::filled(shape.rank(), 0), 0, dtype);
}

/// Execution::workspace_size of a call whose caller has made the Workspace.
constexpr std::size_t kOutside = SIZE_MAX;

/// One call's stream and workspace on this thread, and its convolutions.
class Call {
 public:
  Call(const Place& place, const Execution& execution)
      : precision_(parse_precision(execution.precision)), autotune_(false), backend_(backend_of(place.device)) {
    if (place.device.is_cpu()) return;
    stream_.emplace(place.device.index, reinterpret_cast<CUstream_st*>(execution.stream));
    if (execution.workspace_size != kOutside)
      workspace_.emplace(place.device.index, reinterpret_cast<void*>(execution.workspace), execution.workspace_size);
  }
  void gather(const Layer& layer, ConvDirection direction, const Tensor& source, const Tensor& w, const Tensor& bias,
              const Tensor& out) {
    const auto convolve = direction == ConvDirection::forward ? &Backend::conv_forward : &Backend::conv_dgrad;
    (backend_.*convolve)(layer.problem, source, w, bias, out, Algorithm::automatic, precision_);
  }
  void gather(const Layer& layer, const Tensor& source, const Tensor& w, const Tensor& bias, const Tensor& out,
              const ConvEpilogue& epilogue) {
    const ConvDirection direction = layer.output_direction();
    if (!epilogue.is_needed()) return gather(layer, direction, source, w, bias, out);
    backend_.conv_activated(layer.problem, direction, source, w, bias, out, {}, epilogue, Algorithm::automatic, precision_);
  }
  void wgrad(const Layer& layer, const Tensor& x, const Tensor& dy, const Tensor& dw) {
    backend_.conv_wgrad(layer.problem, layer.transposed ? x : dy, layer.transposed ? dy : x, dw, Algorithm::automatic,
                        precision_);
  }
  [[nodiscard]] Backend& backend() { return backend_; }

 private:
  Precision precision_;
  AutotuneGuard autotune_;  // off: measuring would wait
  Backend& backend_;
  std::optional<cuda::StreamGuard> stream_;
  std::optional<cuda::Workspace> workspace_;
};

/// The most workspace of the calls that may follow: outputs and inputs anywhere, with anything that conv_forward() can apply.
std::size_t measure(const Problem& problem, const Layer& layer, const Place& place, std::string_view direction,
                    std::string_view precision) {
  // Kernels are not run and read nothing, but gradients are set to zero and must exist.
  const Tensor weights = Tensor::empty(layer.weight, {place.dtype, place.device});
  const Tensor sums = Tensor::empty({layer.channels}, {place.dtype, place.device});
  const auto dw = reinterpret_cast<Address>(weights.raw()), db = reinterpret_cast<Address>(sums.raw());
  constexpr Address kAligned = Address{1} << 40;
  const std::string name(name_of(place.dtype));
  std::size_t most = 0;
  const auto count = [&](const std::function<void(const Execution&)>& call) {
    most = std::max(most, cuda::measure_workspace(place.device.index, [&](CUstream_st* stream) {
                      call({0, kOutside, place.device.index, reinterpret_cast<Address>(stream), precision});
                    }));
  };
  const Address element = kAligned + size_of(place.dtype);
  for (const Address in :
       {kAligned, kAligned + 16, element})  // the choice of a kernel depends on the places in a sector of 32 bytes
    for (const Address out : {kAligned, element}) {
      if (direction == "dgrad")
        count([&](const Execution& execution) { conv_backward(problem, name, 0, dw, in, {out, 0, 0}, execution); });
      if (direction == "wgrad")
        count([&](const Execution& execution) { conv_backward(problem, name, in, 0, out, {0, dw, db}, execution); });
      if (direction != "forward") continue;
      for (const char* activation : {"none", "relu", "leaky_relu", "tanh", "snake"})
        for (const Address residual : {Address{0}, out})
          for (const Address before : {Address{0}, out}) {
            const Following following{residual, activation, 0.1, db, db, 1, before};
            count([&](const Execution& execution) { conv_forward(problem, name, in, dw, db, out, following, execution); });
          }
    }
  return most;
}

ConvEpilogue epilogue_of(const char* operation, const Place& place, const Layer& layer, const Following& following) {
  ConvEpilogue epilogue{
      .activation = parse<Activation>(following.activation), .slope = following.slope, .scale = following.scale};
  epilogue.residual = place.borrow_optional(operation, "residual", following.residual, layer.output);
  epilogue.before = place.borrow_optional(operation, "before", following.before, layer.output);
  if (epilogue.activation == Activation::snake) {
    const Address beta = following.beta == 0 ? following.alpha : following.beta;
    epilogue.alpha = place.borrow(operation, "alpha", following.alpha, {layer.channels});
    epilogue.beta = place.borrow(operation, "beta", beta, {layer.channels});
  }
  return epilogue;
}

}  // namespace

Place::Place(std::string_view dtype_name, int device_index)
    : dtype(parse<DType>(dtype_name)), device(device_index < 0 ? Device::cpu() : Device::cuda(device_index)) {}

Tensor Place::borrow(const char* operation, const char* what, Address address, const Shape& shape) const {
  const std::int64_t numel = shape.numel();
  require<Error>(address != 0 || numel == 0, operation, ": expected the address of ", what, ", got 0");
  require<Error>(address % size_of(dtype) == 0, operation, ": expected ", what, " at a multiple of ", size_of(dtype),
                 " bytes, got address ", address);
  return Tensor::over(Storage(reinterpret_cast<void*>(address), static_cast<std::size_t>(numel) * size_of(dtype), device, {}),
                      shape, contiguous_strides(shape), 0, dtype);
}

Tensor Place::borrow_optional(const char* operation, const char* what, Address address, const Shape& shape) const {
  return address == 0 ? Tensor{} : borrow(operation, what, address, shape);
}

Layer::Layer(const Problem& layer, DType dtype) : transposed(std::get<0>(layer)), channels(std::get<3>(layer)) {
  const auto [is_transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G] = layer;
  require<ShapeError>(C_in >= 1 && C_out >= 1, name(), ": expected C_in, C_out >= 1, got C_in=", C_in, " C_out=", C_out);
  require<ShapeError>(G >= 1 && C_in % G == 0 && C_out % G == 0, name(), ": expected groups >= 1 that divide C_in=", C_in,
                      " and C_out=", C_out, ", got ", G);
  require<ShapeError>(N >= 0 && L_in >= 1 && K >= 1, name(), ": expected N >= 0, L_in >= 1 and K >= 1, got N=", N,
                      " L_in=", L_in, " K=", K);
  input = {N, C_in, L_in};
  weight = is_transposed ? Shape{C_in, C_out / G, K} : Shape{C_out, C_in / G, K};
  const Tensor x = shaped(input, dtype), w = shaped(weight, dtype);
  problem = is_transposed ? ops::conv_transpose1d_problem(x, w, {}, {S, {P_l, P_r}, OP, D, G, {}})
                          : ops::conv1d_problem(x, w, {}, {S, {P_l, P_r}, D, G, PaddingMode::zeros});
  output = {N, C_out, is_transposed ? problem.L_out : problem.L_in};
}

std::int64_t output_length(const Problem& problem) { return Layer(problem, DType::f32).output[2]; }

std::size_t workspace_bytes(const Problem& problem, std::string_view dtype, std::string_view direction,
                            std::string_view precision, int device) {
  const Place place(dtype, device);
  const Layer layer(problem, place.dtype);
  const Precision exactness = parse_precision(precision);
  require<Error>(direction == "forward" || direction == "dgrad" || direction == "wgrad",
                 "workspace_bytes: expected a direction forward, dgrad or wgrad, got '", direction, "'");
  if (place.device.is_cpu() || layer.problem.N == 0) return 0;
  static std::mutex mutex;
  static std::map<std::tuple<Problem, DType, std::string, Precision, int>, std::size_t> measured;
  const std::tuple key{problem, place.dtype, std::string(direction), exactness, device};
  const std::scoped_lock lock(mutex);
  const auto found = measured.find(key);
  return found != measured.end() ? found->second
                                 : measured.emplace(key, measure(problem, layer, place, direction, precision)).first->second;
}

void conv_forward(const Problem& problem, std::string_view dtype, Address x, Address w, Address bias, Address y,
                  const Following& following, const Execution& execution) {
  const char* const operation = "conv_forward";
  const Place place(dtype, execution.device);
  const Layer layer(problem, place.dtype);
  const ConvEpilogue epilogue = epilogue_of(operation, place, layer, following);
  Call call(place, execution);
  if (layer.output.numel() == 0) return;
  call.gather(layer, place.borrow(operation, "x", x, layer.input), place.borrow(operation, "w", w, layer.weight),
              place.borrow_optional(operation, "bias", bias, {layer.channels}), place.borrow(operation, "y", y, layer.output),
              epilogue);
}

void conv_backward(const Problem& problem, std::string_view dtype, Address x, Address w, Address dy_address,
                   const Gradients& gradients, const Execution& execution) {
  const char* const operation = "conv_backward";
  const Place place(dtype, execution.device);
  const Layer layer(problem, place.dtype);
  const Tensor dx = place.borrow_optional(operation, "dx", gradients.x, layer.input),
               dw = place.borrow_optional(operation, "dw", gradients.weight, layer.weight),
               db = place.borrow_optional(operation, "db", gradients.bias, {1, layer.channels, 1});
  Call call(place, execution);
  if (layer.problem.N == 0) {
    for (const Tensor& sum : {dw, db})
      if (sum.defined()) call.backend().fill(sum, 0);
    return;
  }
  const Tensor dy = place.borrow(operation, "dy", dy_address, layer.output);
  if (dx.defined()) call.gather(layer, layer.input_direction(), dy, place.borrow(operation, "w", w, layer.weight), {}, dx);
  if (dw.defined()) call.wgrad(layer, place.borrow(operation, "x", x, layer.input), dy, dw);
  if (db.defined()) call.backend().reduce(ReduceOp::sum, db, dy);
}

void bind_raw_conv(nb::module_& module) {
  using namespace nb::literals;
  module.def("output_length", &output_length, "problem"_a, R"(The layer's L_out.

problem: (transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G) of a ConvTranspose1d (transposed) or Conv1d, whose input is
(N, C_in, L_in). OP is not used for Conv1d. Raises ShapeError if the numbers do not fit.)");
  module.def(
      "workspace_bytes", &workspace_bytes, "problem"_a, "dtype"_a, "direction"_a, "precision"_a, "device"_a, kUnlocked,
      R"(The bytes of workspace that conv_forward (direction "forward") or conv_backward ("dgrad" for dx, "wgrad" for dw and
db, the larger one for all) needs on a device (-1: CPU), whatever follows the convolution. 0 on the CPU. On a GPU the first call for a problem takes a few milliseconds.)");
  module.def(
      "conv_forward",
      [](const Problem& problem, std::string_view dtype, Address x, Address w, Address bias, Address residual, Address y,
         Address workspace, std::size_t workspace_size, int device, Address stream, std::string_view precision,
         std::string_view activation, double slope, Address alpha, Address beta, double scale, Address before) {
        conv_forward(problem, dtype, x, w, bias, y, {residual, activation, slope, alpha, beta, scale, before},
                     {workspace, workspace_size, device, stream, precision});
      },
      "problem"_a, "dtype"_a, "x"_a, "w"_a, "bias"_a, "residual"_a, "y"_a, "workspace"_a, "workspace_size"_a, "device"_a,
      "stream"_a, "precision"_a, "activation"_a = "none", "slope"_a = 0.01, "alpha"_a = 0, "beta"_a = 0, "scale"_a = 1.0,
      "before"_a = 0, kUnlocked, R"(y = residual + scale*activation(layer(x) + bias), on raw addresses.

x (N, C_in, L_in), w (C_in, C_out/G, K) for ConvTranspose1d and (C_out, C_in/G, K) for Conv1d, bias (C_out) or 0, residual and y
(N, C_out, L_out), residual or 0; all contiguous, of one dtype ("f32", "f64", "f16", "bf16"), on one device (index; -1: CPU).
activation: "none", "relu", "leaky_relu" (slope), "tanh" or "snake" (alpha and beta (C_out), beta 0: alpha). before, of y's shape or 0,
receives sums + bias. precision: "ieee", "fp32" or "tf32". All work goes to `stream` (a cudaStream_t; not used on the CPU); nothing
waits. Raises ShapeError, DTypeError, DeviceError, Error.)");
  module.def(
      "conv_backward",
      [](const Problem& problem, std::string_view dtype, Address x, Address w, Address dy, Address dx, Address dw, Address db,
         Address workspace, std::size_t workspace_size, int device, Address stream, std::string_view precision) {
        conv_backward(problem, dtype, x, w, dy, {dx, dw, db}, {workspace, workspace_size, device, stream, precision});
      },
      "problem"_a, "dtype"_a, "x"_a, "w"_a, "dy"_a, "dx"_a, "dw"_a, "db"_a, "workspace"_a, "workspace_size"_a, "device"_a,
      "stream"_a, "precision"_a, kUnlocked, R"(The gradients dx, dw and db of x, w and the bias, each unless its address is 0.

dy (N, C_out, L_out). w may be 0 without dx, x without dw. Otherwise as conv_forward.)");
}

}  // namespace polyphase::python
