// The anti-aliased SnakeBeta on raw addresses: what polyphase.torch calls. As raw_conv.hpp: the caller owns all memory, nothing
// waits, and all work goes to the given stream.

#include <nanobind/stl/tuple.h>

#include <optional>

#include "casters.hpp"
#include "core.hpp"
#include "cuda/cuda.hpp"
#include "device/backend.hpp"
#include "raw_conv.hpp"

namespace polyphase::python {
namespace {

/// N, C, L
using Sizes = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
/// x, alpha, beta, up, down
using Operands = std::tuple<Address, Address, Address, Address, Address>;

struct Arguments {
  const char* operation;
  Place place;
  Shape shape;
  std::optional<cuda::StreamGuard> stream;

  Arguments(const char* name, const Sizes& sizes, std::string_view dtype, int device, Address stream_address)
      : operation(name), place(dtype, device) {
    const auto [N, C, L] = sizes;
    require<ShapeError>(N >= 0 && C >= 1 && L >= 1, operation, ": expected N >= 0, C >= 1 and L >= 1, got N=", N, " C=", C,
                        " L=", L);
    shape = {N, C, L};
    if (place.device.is_cuda()) stream.emplace(device, reinterpret_cast<CUstream_st*>(stream_address));
  }
  [[nodiscard]] Tensor full(const char* what, Address address) const { return place.borrow(operation, what, address, shape); }
  [[nodiscard]] AntialiasedSnake operands(const Operands& addresses) const {
    const auto [x, alpha, beta, up, down] = addresses;
    const Shape channels{shape[1]}, taps{TensorBackend::kAntialiasTaps};
    return {full("x", x), place.borrow(operation, "alpha", alpha, channels), place.borrow(operation, "beta", beta, channels),
            place.borrow(operation, "up", up, taps), place.borrow(operation, "down", down, taps)};
  }
};

void forward(const Sizes& sizes, std::string_view dtype, const Operands& operands, Address y, int device, Address stream) {
  const Arguments arguments("antialias_snake_forward", sizes, dtype, device, stream);
  if (arguments.shape.numel() == 0) return;
  backend_of(arguments.place.device).antialiased_snake(arguments.full("y", y), arguments.operands(operands));
}

void backward(const Sizes& sizes, std::string_view dtype, const Operands& operands, Address dy, Address dx, Address dalpha,
              Address dbeta, int device, Address stream) {
  const char* const operation = "antialias_snake_backward";
  const Arguments arguments(operation, sizes, dtype, device, stream);
  const Place& place = arguments.place;
  const Shape channels{arguments.shape[1]};
  const AntialiasedSnakeGradients gradients{place.borrow_optional(operation, "dx", dx, arguments.shape),
                                            place.borrow_optional(operation, "dalpha", dalpha, channels),
                                            place.borrow_optional(operation, "dbeta", dbeta, channels)};
  Backend& backend = backend_of(place.device);
  if (arguments.shape.numel() == 0) {
    for (const Tensor& sum : {gradients.alpha, gradients.beta})
      if (sum.defined()) backend.fill(sum, 0);
    return;
  }
  backend.antialiased_snake_backward(gradients, arguments.operands(operands), arguments.full("dy", dy));
}

}  // namespace

void bind_raw_antialias(nb::module_& module) {
  using namespace nb::literals;
  module.attr("_ANTIALIAS_TAPS") = TensorBackend::kAntialiasTaps;
  module.def("antialias_snake_forward", &forward, "sizes"_a, "dtype"_a, "operands"_a, "y"_a, "device"_a, "stream"_a, kUnlocked,
             R"(y = antialias_snake(x, alpha, beta, up, down), on raw addresses.

sizes: (N, C, L). operands: the addresses of x (N, C, L), alpha (C), beta (C), up (12) and down (12), all contiguous and of one dtype.
device, stream and errors as of conv_forward.)");
  module.def("antialias_snake_backward", &backward, "sizes"_a, "dtype"_a, "operands"_a, "dy"_a, "dx"_a, "dalpha"_a, "dbeta"_a,
             "device"_a, "stream"_a, kUnlocked,
             "The gradients dx (N, C, L), dalpha (C) and dbeta (C) from dy; each address may be 0. Otherwise as "
             "antialias_snake_forward.");
}

}  // namespace polyphase::python
