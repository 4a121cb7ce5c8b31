#include "tensor/event.hpp"

#include "tensor/error.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase {

Event::Event(Device device) : event_(tensor_backend_of(device).make_event()), device_(device) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

const BackendEvent& Event::recorded(const char* operation) const {
  require<Error>(event_ != nullptr, operation, ": expected an event, got one that was moved from");
  require<Error>(is_recorded_, operation, ": expected an event after its record(), got one before");
  return *event_;
}

void Event::record() {
  require<Error>(event_ != nullptr, "Event::record: expected an event, got one that was moved from");
  event_->record();
  is_recorded_ = true;
}

bool Event::is_done() const { return recorded("Event::is_done").is_done(); }

void Event::synchronize() const { recorded("Event::synchronize").synchronize(); }

double Event::elapsed_ms(const Event& end) const {
  const BackendEvent& first = recorded("Event::elapsed_ms");
  const BackendEvent& last = end.recorded("Event::elapsed_ms");
  require<DeviceError>(device_ == end.device_, "Event::elapsed_ms: expected events of one device, got ", device_, " and ",
                       end.device_);
  first.synchronize();
  last.synchronize();
  return first.elapsed_ms(last);
}

}  // namespace polyphase
