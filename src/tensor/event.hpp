#pragma once
// Moments in a device's work, to wait for and to measure time.

#include <memory>

#include "../tensor/device.hpp"

namespace polyphase {

class BackendEvent;

/// A moment in the work of a device. On a GPU it is reached when all work issued to the calling thread's stream before record()
/// is done; on the CPU, where operations are done when they return, at record().
///
///     pp::Event begin(device), end(device);
///     begin.record();
///     pp::Tensor y = net(x);
///     end.record();
///     double milliseconds = begin.elapsed_ms(end);
///
/// On a GPU all functions except the constructor throw DeviceError in cuda::capture().
class Event {
 public:
  /// Throws DeviceError if the device does not exist.
  explicit Event(Device device = default_device());
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Marks the moment, replacing an earlier one. The host does not wait.
  void record();
  /// Whether the moment is reached. Throws Error before record().
  [[nodiscard]] bool is_done() const;
  /// The host waits until the moment is reached. Throws Error before record().
  void synchronize() const;
  /// Milliseconds from this moment to `end`, negative if `end` came first; waits for both. The resolution on a GPU is half a
  /// microsecond. Throws Error before record() of either, DeviceError if the devices differ.
  [[nodiscard]] double elapsed_ms(const Event& end) const;

 private:
  [[nodiscard]] const BackendEvent& recorded(const char* operation) const;

  std::unique_ptr<BackendEvent> event_;
  Device device_;
  bool is_recorded_ = false;
};

}  // namespace polyphase
