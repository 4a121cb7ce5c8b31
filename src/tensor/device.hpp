#pragma once
// The place of a tensor's elements. `cpu` always exists; `cuda:i` if the build and the machine have it.

#include <iosfwd>
#include <string>
#include <string_view>

namespace polyphase {

enum class DeviceType : unsigned char { cpu, cuda };

/// A device type and its index. Cheap to copy and compare; a Device object alone does not use the device.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  [[nodiscard]] static constexpr Device cpu() { return {DeviceType::cpu, 0}; }
  [[nodiscard]] static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }
  /// cuda:0 if this build and machine have one, else cpu.
  [[nodiscard]] static Device best();
  /// Reads "cpu", "cuda" or "cuda:1". Throws DeviceError naming these forms.
  [[nodiscard]] static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  [[nodiscard]] constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// "cpu" or "cuda:0".
[[nodiscard]] std::string to_string(const Device& device);
std::ostream& operator<<(std::ostream& out, const Device& device);

/// The device of new tensors by default: cpu unless set or guarded. Per thread.
[[nodiscard]] Device default_device();

/// Sets the calling thread's default device until the end of the scope. Throws DeviceError if the device does not exist.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  Device previous_;
};

}  // namespace polyphase
