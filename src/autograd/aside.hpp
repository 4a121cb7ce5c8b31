#pragma once
// Work of a backward pass that only the end of the pass waits for: gradients of parameters, next to the chain of gradients of
// activations. In a graph that is being recorded it runs at the same time as what follows. Internal.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/tensor.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase::autograd {

/// A second stream of a pass. Where the device offers none (TensorBackend::make_fork), work runs where it is issued.
class Aside {
 public:
  explicit Aside(Device device);
  [[nodiscard]] bool exists() const { return fork_ != nullptr; }

  /// Issues `work` after everything that the pass has issued so far. `uses`, which it reads, stay until it has run.
  void begin(std::vector<Tensor> uses, const std::function<void()>& work);
  /// Issues `work`, which reads only what earlier work of begin() or run() made, and what existed before that.
  void run(const std::function<void()>& work);
  /// Everything issued from now on runs after all of it.
  void join();

 private:
  struct Held {
    std::size_t moment, bytes;
    std::vector<Tensor> tensors;
  };

  std::unique_ptr<BackendFork> fork_;
  std::deque<Held> held_;  // oldest first
  std::size_t held_bytes_ = 0;
};

}  // namespace polyphase::autograd
