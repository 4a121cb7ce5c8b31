#include "autograd/aside.hpp"

#include <utility>

#include "device/backend.hpp"

namespace polyphase::autograd {
namespace {

constexpr std::size_t kPart = 1;
/// Tensors that wait for work aside. With more, the pass waits for the oldest: it could use their memory again.
constexpr std::size_t kMostHeldBytes = std::size_t{1} << 27;

std::size_t bytes_of(const std::vector<Tensor>& tensors) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors)
    if (tensor.defined()) bytes += static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
  return bytes;
}

}  // namespace

Aside::Aside(Device device) : fork_(backend_of(device).make_fork(kPart + 1)) {}

void Aside::begin(std::vector<Tensor> uses, const std::function<void()>& work) {
  if (!exists()) return work();
  while (held_bytes_ > kMostHeldBytes) {
    fork_->wait_for(held_.front().moment);
    held_bytes_ -= held_.front().bytes;
    held_.pop_front();
  }
  fork_->follow(kPart);
  fork_->run(kPart, work);
  const std::size_t bytes = bytes_of(uses);
  held_.push_back({fork_->moment(kPart), bytes, std::move(uses)});
  held_bytes_ += bytes;
}

void Aside::run(const std::function<void()>& work) { exists() ? fork_->run(kPart, work) : work(); }

void Aside::join() {
  if (!exists()) return;
  fork_->join();
  held_.clear();
  held_bytes_ = 0;
}

}  // namespace polyphase::autograd
