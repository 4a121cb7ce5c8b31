#pragma once
// All that a device must be able to do. Every operation of ops/ and optim/ comes down to these few calls; cpu/backend.cpp
// answers them on the host, cuda/backend.cpp on a GPU. Not for users.

#include "device/conv_backend.hpp"
#include "device/optimizer_backend.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase {

/// One kind of device. There is one Backend per device, alive for the whole program.
class Backend : public TensorBackend, public ConvBackend, public OptimizerBackend {};

/// out (N, C, L) = epilogue(out) by backend.map(), in place.
void finish_in_place(Backend& backend, const ConvEpilogue& epilogue, const Tensor& out);

/// The backend of a device. Throws DeviceError, naming what is missing, where the device does not exist.
[[nodiscard]] Backend& backend_of(Device device);
// Each device's room supplies its own; only backend_of and device_count call these.

/// The host (cpu/backend.cpp).
[[nodiscard]] Backend& cpu_backend();
/// CUDA device `index` (cuda/; cuda/no_cuda.cpp in a build without). Throws DeviceError.
[[nodiscard]] Backend& cuda_backend(int index);
[[nodiscard]] int cuda_device_count();

}  // namespace polyphase
