#include "tensor/backend.hpp"

#include <cmath>
#include <limits>
#include <type_traits>

#include "tensor/error.hpp"

namespace polyphase {
namespace {

// The next number towards minus infinity.
template <class T>
T before(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(x, -std::numeric_limits<T>::infinity());
  } else {  // a sign and a magnitude
    const int step = (x.bits & 0x8000) != 0 ? 1 : -1;
    x.bits = x.bits == 0 ? std::uint16_t{0x8001} : static_cast<std::uint16_t>(x.bits + step);
    return x;
  }
}

}  // namespace

Backend& backend_of(Device device) {
  if (device.is_cuda()) return cuda_backend(device.index);
  require<DeviceError>(device.index == 0, device, ": expected cpu, which is a single device");
  return cpu_backend();
}

MapOp map_op_of(Activation activation) {
  switch (activation) {
    case Activation::none:
      break;
    case Activation::relu:
      return MapOp::relu;
    case Activation::leaky_relu:
      return MapOp::leaky_relu;
    case Activation::tanh:
      return MapOp::tanh;
    case Activation::snake:
      return MapOp::snake;
  }
  throw Error("map_op_of: expected an activation, got none");
}

MapOp derivative_of(Activation activation) {
  switch (activation) {
    case Activation::none:
    case Activation::snake:
      break;
    case Activation::relu:
      return MapOp::relu_grad;
    case Activation::leaky_relu:  // the result has its argument's sign: slopes are not negative
      return MapOp::leaky_relu_grad;
    case Activation::tanh:
      return MapOp::tanh_grad;
  }
  throw Error("derivative_of: expected relu, leaky_relu or tanh");
}

namespace {

void activate_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out) {
  if (epilogue.activation == Activation::none) return;
  if (epilogue.derivative.defined())
    return backend.map(derivative_of(epilogue.activation), out, std::array{epilogue.derivative, out}, {epilogue.slope, 0});
  const MapOp op = map_op_of(epilogue.activation);
  if (epilogue.activation != Activation::snake) return backend.map(op, out, std::array{out}, {epilogue.slope, 0});
  const auto along_channels = [&](const Tensor& values) {
    return TensorAccess::view(values, out.shape(), {0, 1, 0}, values.offset());
  };
  backend.map(op, out, std::array{out, along_channels(epilogue.alpha), along_channels(epilogue.beta)}, {});
}

}  // namespace

double uniform_limit(double low, double high, DType dtype) {
  return dispatch(dtype, [&]<class T>(T) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return high;
    } else {
      using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
      const T from(static_cast<Wide>(low)), to(static_cast<Wide>(high));
      const T limit = static_cast<Wide>(from) < static_cast<Wide>(to) ? before(to) : from;
      return static_cast<double>(static_cast<Wide>(limit));
    }
  });
}

Tensor Moments::mean_everywhere() const {
  Shape strides = mean.strides();
  for (int d = 0; d < mean.rank(); ++d)
    if (mean.shape()[d] != centred.shape()[d]) strides[d] = 0;
  return Tensor::over(mean.storage(), centred.shape(), strides, mean.offset(), mean.dtype());
}

void finish_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out) {
  if (out.numel() == 0) return;
  if (epilogue.before.defined()) backend.copy(epilogue.before, out);
  activate_in_place(backend, epilogue, out);
  if (epilogue.residual.defined()) backend.map(MapOp::add_scaled, out, std::array{epilogue.residual, out}, {epilogue.scale, 0});
}

int device_count(DeviceType type) { return type == DeviceType::cuda ? cuda_device_count() : 1; }

}  // namespace polyphase
