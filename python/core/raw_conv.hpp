#pragma once
// Convolutions on raw addresses: what polyphase.torch and polyphase.jax call. The caller owns all memory, the result and the
// workspace included. Nothing is kept after a call, nothing waits, and all work goes to the given stream.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "conv/problem.hpp"
#include "tensor/tensor.hpp"

namespace polyphase::python {

using Address = std::uintptr_t;

/// (transposed, N, C_in, C_out, L_in, K, S, P_l, P_r, OP, D, G) of a layer; its input is (N, C_in, L_in). OP is not used for
/// Conv1d.
using Problem = std::tuple<bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                           std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

/// Dtype and device of a call's tensors.
struct Place {
  DType dtype;
  Device device;

  /// device_index -1: the CPU. Throws DTypeError.
  Place(std::string_view dtype_name, int device_index);
  /// A contiguous tensor over memory of the caller. Throws Error naming `what` if there is none, or it is not aligned to the
  /// size of an element.
  [[nodiscard]] Tensor borrow(const char* operation, const char* what, Address address, const Shape& shape) const;
  /// Undefined without an address.
  [[nodiscard]] Tensor borrow_optional(const char* operation, const char* what, Address address, const Shape& shape) const;
};

/// A validated layer: the shapes of its tensors, and its ConvProblem, whose sides are exchanged for Conv1d (conv/problem.hpp).
struct Layer {
  bool transposed;
  ConvProblem problem;
  Shape input, weight, output;
  std::int64_t channels;  ///< of the output

  /// Throws ShapeError where the numbers do not fit, DTypeError for i64.
  Layer(const Problem& layer, DType dtype);
  [[nodiscard]] const char* name() const { return transposed ? "conv_transpose1d" : "conv1d"; }
  [[nodiscard]] ConvDirection output_direction() const { return transposed ? ConvDirection::forward : ConvDirection::dgrad; }
  [[nodiscard]] ConvDirection input_direction() const { return transposed ? ConvDirection::dgrad : ConvDirection::forward; }
};

/// Where and how a call computes.
struct Execution {
  Address workspace = 0;           ///< a multiple of 256
  std::size_t workspace_size = 0;  ///< in bytes, at least workspace_bytes(); less throws OutOfMemory
  int device = -1;                 ///< a GPU's index; -1: the CPU
  Address stream = 0;              ///< a cudaStream_t; not used on the CPU
  std::string_view precision = "fp32";
};

/// What follows the sums of conv_forward; addresses may be 0.
struct Following {
  Address residual = 0;  ///< (N, C_out, L_out)
  std::string_view activation = "none";
  double slope = 0.01;          ///< for leaky_relu
  Address alpha = 0, beta = 0;  ///< (C_out), for snake; beta 0: alpha
  double scale = 1;             ///< factor of what is added to the residual
  Address before = 0;           ///< (N, C_out, L_out): receives sums + bias
};

/// Where conv_backward writes; 0: nowhere.
struct Gradients {
  Address x = 0;       ///< (N, C_in, L_in)
  Address weight = 0;  ///< of the weight's shape
  Address bias = 0;    ///< (C_out)
};

/// L_out.
[[nodiscard]] std::int64_t output_length(const Problem& problem);
/// The workspace of a call in a direction "forward", "dgrad" or "wgrad"; 0 on the CPU.
[[nodiscard]] std::size_t workspace_bytes(const Problem& problem, std::string_view dtype, std::string_view direction,
                                          std::string_view precision, int device);
/// y = residual + scale*activation(layer(x) + bias).
void conv_forward(const Problem& problem, std::string_view dtype, Address x, Address w, Address bias, Address y,
                  const Following& following, const Execution& execution);
/// The gradients from dy (N, C_out, L_out); w may be 0 without that of x, x without the weight's.
void conv_backward(const Problem& problem, std::string_view dtype, Address x, Address w, Address dy, const Gradients& gradients,
                   const Execution& execution);

}  // namespace polyphase::python
