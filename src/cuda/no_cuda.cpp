// What a build without CUDA answers when it is asked for a CUDA device.

#include "tensor/backend.hpp"
#include "tensor/error.hpp"

namespace polyphase {

Backend& cuda_backend(int index) {
  throw DeviceError(concat(Device::cuda(index), ": this build of polyphase has no CUDA support; devices: cpu"));
}

int cuda_device_count() { return 0; }

}  // namespace polyphase
