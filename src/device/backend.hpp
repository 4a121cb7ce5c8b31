#pragma once
// The functions of a device. Every operation of ops/ and optim/ uses only these; cpu/backend.cpp implements them on the host,
// cuda/backend.cpp on a GPU. Not for users.

#include "device/conv_backend.hpp"
#include "device/optimizer_backend.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase {

/// One device. There is one Backend per device for the whole program.
class Backend : public TensorBackend, public ConvBackend, public OptimizerBackend {};

/// prologue(source) by map(); `source` itself if there is no activation.
[[nodiscard]] Tensor activated_source(Backend& backend, const ConvPrologue& prologue, const Tensor& source);
/// out (N, C, L) = epilogue(out) by backend.map(), in place.
void finish_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out);

/// The backend of a device. Throws DeviceError, naming what is missing, if the device does not exist.
[[nodiscard]] Backend& backend_of(Device device);
// Each device's room implements its own; only backend_of and device_count call these.

/// The host (cpu/backend.cpp).
[[nodiscard]] Backend& cpu_backend();
/// CUDA device `index` (cuda/; cuda/no_cuda.cpp in a build without CUDA). Throws DeviceError.
[[nodiscard]] Backend& cuda_backend(int index);
[[nodiscard]] int cuda_device_count();

}  // namespace polyphase
