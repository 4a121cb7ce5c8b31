#include "tensor/backend.hpp"

#include "tensor/error.hpp"

namespace polyphase {

Backend& backend_of(Device device) {
  if (device.is_cuda()) return cuda_backend(device.index);
  require<DeviceError>(device.index == 0, device, ": expected cpu, which is a single device");
  return cpu_backend();
}

int device_count(DeviceType type) { return type == DeviceType::cuda ? cuda_device_count() : 1; }

}  // namespace polyphase
