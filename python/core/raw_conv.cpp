// Convolutions on raw addresses: what polyphase.torch and polyphase.jax call. The caller owns all memory, the result and the
// workspace included. Nothing is kept after a call, nothing waits, and all work goes to the given stream.

#include <nanobind/stl/tuple.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "casters.hpp"
#include "conv/autotune.hpp"
#include "core.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "ops/conv_problem.hpp"

namespace polyphase::python {
namespace {

using Address = std::uintptr_t;

/// (transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G) of a layer; its input is (N, C_in, L_in). OP is ignored for
/// Conv1d.
using Problem = std::tuple<bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

/// Where a call computes: dtype and device of its tensors, and the stream if that is a GPU.
struct Place {
  DType dtype;
  Device device;

  Place(std::string_view dtype_name, int device_index)
      : dtype(parse<DType>(dtype_name)), device(device_index < 0 ? Device::cpu() : Device::cuda(device_index)) {}

  /// A tensor over memory of the caller. Throws Error naming `what` if there is none.
  [[nodiscard]] Tensor borrow(const char* operation, const char* what, Address address, const Shape& shape) const {
    const std::int64_t numel = shape.numel();
    require<Error>(address != 0 || numel == 0, operation, ": expected the address of ", what, ", got 0");
    require<Error>(address % size_of(dtype) == 0, operation, ": expected ", what, " at a multiple of ", size_of(dtype),
                   " bytes, got address ", address);
    return Tensor::over(Storage(reinterpret_cast<void*>(address), static_cast<std::size_t>(numel) * size_of(dtype), device, {}),
                        shape, contiguous_strides(shape), 0, dtype);
  }
  /// Undefined without an address.
  [[nodiscard]] Tensor borrow_optional(const char* operation, const char* what, Address address, const Shape& shape) const {
    return address == 0 ? Tensor{} : borrow(operation, what, address, shape);
  }
};

/// A validated layer: the shapes of its tensors, and its ConvProblem, whose sides are exchanged for Conv1d (conv/problem.hpp).
struct Layer {
  bool transposed;
  ConvProblem problem;
  Shape input, weight, output;
  std::int64_t channels;  ///< of the output

  Layer(const Problem& layer, DType dtype) : transposed(std::get<0>(layer)), channels(std::get<3>(layer)) {
    const auto [is_transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G] = layer;
    require<ShapeError>(C_in >= 1 && C_out >= 1, name(), ": expected C_in, C_out >= 1, got C_in=", C_in, " C_out=", C_out);
    require<ShapeError>(G >= 1 && C_in % G == 0 && C_out % G == 0, name(), ": expected groups >= 1 that divide C_in=", C_in,
                        " and C_out=", C_out, ", got ", G);
    require<ShapeError>(N >= 0 && L_in >= 1 && K >= 1, name(), ": expected N >= 0, L_in >= 1 and K >= 1, got N=", N,
                        " L_in=", L_in, " K=", K);
    input = {N, C_in, L_in};
    weight = is_transposed ? Shape{C_in, C_out / G, K} : Shape{C_out, C_in / G, K};
    problem = is_transposed ? ops::conv_transpose1d_problem(
                                  shaped(input, dtype), shaped(weight, dtype), {},
                                  {.stride = S, .padding = {P_l, P_r}, .output_padding = OP, .dilation = D, .groups = G})
                            : ops::conv1d_problem(shaped(input, dtype), shaped(weight, dtype), {},
                                                  {.stride = S, .padding = {P_l, P_r}, .dilation = D, .groups = G});
    output = {N, C_out, is_transposed ? problem.L_out : problem.L_in};
  }

  [[nodiscard]] const char* name() const { return transposed ? "conv_transpose1d" : "conv1d"; }
  [[nodiscard]] ConvDirection output_direction() const { return transposed ? ConvDirection::forward : ConvDirection::dgrad; }
  [[nodiscard]] ConvDirection input_direction() const { return transposed ? ConvDirection::dgrad : ConvDirection::forward; }

 private:
  /// A tensor without elements to read: one byte's address with strides of 0.
  static Tensor shaped(const Shape& shape, DType dtype) {
    static const Storage element(sizeof(double), Device::cpu());
    Shape strides = shape;
    for (int dim = 0; dim < shape.rank(); ++dim) strides[dim] = 0;
    return Tensor::over(element, shape, strides, 0, dtype);
  }
};

/// One call's stream, workspace and precision on this thread. On the CPU only the precision matters.
class Call {
 public:
  Call(Device device, Address stream) : autotune_(false) {
    if (device.is_cuda()) stream_.emplace(device.index, reinterpret_cast<CUstream_st*>(stream));
  }

 private:
  AutotuneGuard autotune_;  // measuring would wait
  std::optional<cuda::StreamGuard> stream_;
};

std::int64_t output_length(const Problem& problem) { return Layer(problem, DType::f32).output[2]; }

std::size_t workspace_bytes(const Problem& problem, std::string_view dtype, std::string_view direction,
                            std::string_view precision, int device_index) {
  static_cast<void>(Layer(problem, parse<DType>(dtype)));
  static_cast<void>(parse_precision(precision));
  require<Error>(direction == "forward" || direction == "dgrad" || direction == "wgrad",
                 "workspace_bytes: expected a direction forward, dgrad or wgrad, got '", direction, "'");
  static_cast<void>(device_index);
  return 0;
}

void conv_forward(const Problem& layer_numbers, std::string_view dtype, Address x_ptr, Address w_ptr, Address bias_ptr,
                  Address residual_ptr, Address y_ptr, Address /*workspace*/, std::size_t /*workspace_size*/, int device_index,
                  Address stream, std::string_view precision, std::string_view activation, double slope, Address alpha_ptr,
                  Address beta_ptr, double scale) {
  const char* const operation = "conv_forward";
  const Place place(dtype, device_index);
  const Layer layer(layer_numbers, place.dtype);
  if (layer.output.numel() == 0) return;
  const Tensor x = place.borrow(operation, "x", x_ptr, layer.input), w = place.borrow(operation, "w", w_ptr, layer.weight),
               y = place.borrow(operation, "y", y_ptr, layer.output),
               bias = place.borrow_optional(operation, "bias", bias_ptr, {layer.channels});
  ConvEpilogue epilogue{.activation = parse<Activation>(activation), .slope = slope, .scale = scale};
  epilogue.residual = place.borrow_optional(operation, "residual", residual_ptr, layer.output);
  if (epilogue.activation == Activation::snake) {
    epilogue.alpha = place.borrow(operation, "alpha", alpha_ptr, {layer.channels});
    epilogue.beta = place.borrow(operation, "beta", beta_ptr == 0 ? alpha_ptr : beta_ptr, {layer.channels});
  }
  const Precision exactness = parse_precision(precision);
  const Call call(place.device, stream);
  Backend& backend = backend_of(place.device);
  const ConvDirection direction = layer.output_direction();
  if (epilogue.is_needed()) {
    backend.conv_activated(layer.problem, direction, x, w, bias, y, epilogue, Algorithm::automatic, exactness);
  } else if (direction == ConvDirection::forward) {
    backend.conv_forward(layer.problem, x, w, bias, y, Algorithm::automatic, exactness);
  } else {
    backend.conv_dgrad(layer.problem, x, w, bias, y, Algorithm::automatic, exactness);
  }
}

void conv_dgrad(const Problem& layer_numbers, std::string_view dtype, Address dy_ptr, Address w_ptr, Address dx_ptr,
                Address /*workspace*/, std::size_t /*workspace_size*/, int device_index, Address stream,
                std::string_view precision) {
  const char* const operation = "conv_dgrad";
  const Place place(dtype, device_index);
  const Layer layer(layer_numbers, place.dtype);
  if (layer.input.numel() == 0) return;
  const Tensor dy = place.borrow(operation, "dy", dy_ptr, layer.output), w = place.borrow(operation, "w", w_ptr, layer.weight),
               dx = place.borrow(operation, "dx", dx_ptr, layer.input);
  const Precision exactness = parse_precision(precision);
  const Call call(place.device, stream);
  Backend& backend = backend_of(place.device);
  if (layer.input_direction() == ConvDirection::forward) {
    backend.conv_forward(layer.problem, dy, w, {}, dx, Algorithm::automatic, exactness);
  } else {
    backend.conv_dgrad(layer.problem, dy, w, {}, dx, Algorithm::automatic, exactness);
  }
}

void conv_wgrad(const Problem& layer_numbers, std::string_view dtype, Address x_ptr, Address dy_ptr, Address dw_ptr,
                Address db_ptr, Address /*workspace*/, std::size_t /*workspace_size*/, int device_index, Address stream,
                std::string_view precision) {
  const char* const operation = "conv_wgrad";
  const Place place(dtype, device_index);
  const Layer layer(layer_numbers, place.dtype);
  const Tensor x = place.borrow(operation, "x", x_ptr, layer.input), dy = place.borrow(operation, "dy", dy_ptr, layer.output),
               dw = place.borrow_optional(operation, "dw", dw_ptr, layer.weight),
               db = place.borrow_optional(operation, "db", db_ptr, {1, layer.channels, 1});
  const Precision exactness = parse_precision(precision);
  const Call call(place.device, stream);
  Backend& backend = backend_of(place.device);
  if (layer.problem.N == 0) {
    if (dw.defined()) backend.fill(dw, 0);
    if (db.defined()) backend.fill(db, 0);
    return;
  }
  const Tensor &low = layer.transposed ? x : dy, &high = layer.transposed ? dy : x;
  if (dw.defined()) backend.conv_wgrad(layer.problem, low, high, dw, Algorithm::automatic, exactness);
  if (db.defined()) backend.reduce(ReduceOp::sum, db, dy);
}

}  // namespace

void bind_raw_conv(nb::module_& module) {
  using namespace nb::literals;
  const auto unlocked = nb::call_guard<nb::gil_scoped_release>();
  module.def("output_length", &output_length, "problem"_a, R"(The layer's L_out.

problem: (transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G) of a ConvTranspose1d (transposed) or Conv1d, whose input is
(N, C_in, L_in). OP is not used for Conv1d. Raises ShapeError if the numbers do not fit.)");
  module.def(
      "workspace_bytes", &workspace_bytes, "problem"_a, "dtype"_a, "direction"_a, "precision"_a, "device"_a, unlocked,
      R"(The bytes of workspace that conv_forward (direction "forward"), conv_dgrad ("dgrad") or conv_wgrad ("wgrad") needs on
a device (-1: CPU). 0 on the CPU.)");
  module.def("conv_forward", &conv_forward, "problem"_a, "dtype"_a, "x"_a, "w"_a, "bias"_a, "residual"_a, "y"_a, "workspace"_a,
             "workspace_size"_a, "device"_a, "stream"_a, "precision"_a, "activation"_a = "none", "slope"_a = 0.01,
             "alpha"_a = 0, "beta"_a = 0, "scale"_a = 1.0, unlocked,
             R"(y = residual + scale*activation(layer(x) + bias), on raw addresses.

x (N, C_in, L_in), w (C_in, C_out/G, K) for ConvTranspose1d and (C_out, C_in/G, K) for Conv1d, bias (C_out) or 0, residual and y
(N, C_out, L_out), residual or 0; all contiguous, of one dtype ("f32", "f64", "f16", "bf16"), on one device (index; -1: CPU).
activation: "none", "relu", "leaky_relu" (slope), "tanh" or "snake" (alpha and beta (C_out), beta 0: alpha).
precision: "ieee", "fp32" or "tf32". All work goes to `stream` (a cudaStream_t; not used on the CPU); nothing waits.
Raises ShapeError, DTypeError, DeviceError, Error.)");
  module.def("conv_dgrad", &conv_dgrad, "problem"_a, "dtype"_a, "dy"_a, "w"_a, "dx"_a, "workspace"_a, "workspace_size"_a,
             "device"_a, "stream"_a, "precision"_a, unlocked,
             "The gradient dx (N, C_in, L_in) of the layer's input from dy (N, C_out, L_out). Otherwise as conv_forward.");
  module.def(
      "conv_wgrad", &conv_wgrad, "problem"_a, "dtype"_a, "x"_a, "dy"_a, "dw"_a, "db"_a, "workspace"_a, "workspace_size"_a,
      "device"_a, "stream"_a, "precision"_a, unlocked,
      "The gradients dw (of w's shape) and db (C_out) from x and dy; either address may be 0. Otherwise as conv_forward.");
}

}  // namespace polyphase::python
