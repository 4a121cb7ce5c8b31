#include "tensor/device.hpp"

#include <charconv>
#include <ostream>

#include "tensor/error.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase {
namespace {

Device& thread_default() {
  thread_local Device device = Device::cpu();
  return device;
}

}  // namespace

Device Device::best() { return device_count(DeviceType::cuda) > 0 ? cuda(0) : cpu(); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda(0);
  constexpr std::string_view prefix = "cuda:";
  if (text.starts_with(prefix)) {
    const std::string_view digits = text.substr(prefix.size());
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0) return cuda(index);
  }
  throw DeviceError(concat("device: expected \"cpu\", \"cuda\" or \"cuda:N\", got \"", text, "\""));
}

std::string to_string(const Device& device) {
  if (device.is_cuda()) return "cuda:" + std::to_string(device.index);
  return device.index == 0 ? "cpu" : "cpu:" + std::to_string(device.index);
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << to_string(device); }

Device default_device() { return thread_default(); }

DeviceGuard::DeviceGuard(Device device) : previous_(thread_default()) {
  (void)tensor_backend_of(device);  // throws if there is no such device
  thread_default() = device;
}

DeviceGuard::~DeviceGuard() { thread_default() = previous_; }

}  // namespace polyphase
