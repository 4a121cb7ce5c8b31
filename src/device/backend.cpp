#include "device/backend.hpp"

#include <array>

#include "tensor/error.hpp"

namespace polyphase {

Backend& backend_of(Device device) {
  if (device.is_cuda()) return cuda_backend(device.index);
  require<DeviceError>(device.index == 0, device, ": expected cpu, which is a single device");
  return cpu_backend();
}

TensorBackend& tensor_backend_of(Device device) { return backend_of(device); }

int device_count(DeviceType type) { return type == DeviceType::cuda ? cuda_device_count() : 1; }

namespace {

/// Values of channels as a tensor of out's shape (N, C, L).
Tensor along_channels(const Tensor& values, const Tensor& out) {
  return TensorAccess::view(values, out.shape(), {0, 1, 0}, values.offset());
}

void activate_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out) {
  if (epilogue.activation == Activation::none) return;
  if (epilogue.derivative.defined())
    return backend.map(derivative_of(epilogue.activation), out, std::array{epilogue.derivative, out}, {epilogue.slope, 0});
  const MapOp op = map_op_of(epilogue.activation);
  if (epilogue.activation != Activation::snake) return backend.map(op, out, std::array{out}, {epilogue.slope, 0});
  backend.map(op, out, std::array{out, along_channels(epilogue.alpha, out), along_channels(epilogue.beta, out)}, {});
}

}  // namespace

Tensor activated_source(Backend& backend, const ConvPrologue& prologue, const Tensor& source) {
  if (!prologue.is_needed()) return source;
  const Tensor read = Tensor::empty_like(source);
  const MapOp op = map_op_of(prologue.activation);
  if (prologue.activation == Activation::snake)
    backend.map(op, read, std::array{source, along_channels(prologue.alpha, read), along_channels(prologue.beta, read)}, {});
  else
    backend.map(op, read, std::array{source}, {prologue.slope, 0});
  return read;
}

void finish_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out) {
  if (out.numel() == 0) return;
  if (epilogue.before.defined()) backend.copy(epilogue.before, out);
  activate_in_place(backend, epilogue, out);
  if (epilogue.residual.defined()) backend.map(MapOp::add_scaled, out, std::array{epilogue.residual, out}, {epilogue.scale, 0});
}

}  // namespace polyphase
