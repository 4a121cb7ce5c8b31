#pragma once
// Operations in which all processes of a group take part.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "../distributed/distributed_error.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase::distributed {

/// What a communicator does at a moment, for the watchdog.
struct Activity {
  std::int64_t started = 0;         ///< operations that this rank has begun
  std::int64_t finished = 0;        ///< of these, how many are done
  std::string label{};              ///< of the oldest unfinished one; empty if there is none
  std::chrono::milliseconds age{};  ///< since that one began
};

enum class Combine : std::uint8_t { sum, average };

/// An operation that was started.
class Pending {
 public:
  /// Not for users.
  class State {
   public:
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    virtual ~State() = default;
    virtual void wait() = 0;
  };
  Pending() = default;
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// On the CPU waits until the operation is done; on a GPU makes the calling thread's current stream wait, not the host.
  /// Throws DistributedError if it failed. Does nothing the second time, and without an operation.
  void wait() {
    if (const std::shared_ptr<State> state = std::exchange(state_, nullptr)) state->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

/// Moves tensors between the processes of a group. All ranks must call the same operations in the same order with tensors of
/// the same size and dtype: over TCP anything else is an error that names the ranks. An operation starts immediately and does
/// not wait; its tensors must not be read or written until wait(). Tensors are contiguous, all on the group's device. `label`
/// names the operation in errors, by its first 39 characters. Results have the same bits on all ranks and in every run.
///
/// f16 and bf16 are rounded after every addition. Throws ShapeError, DTypeError, DeviceError for tensors that do not fit.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world() const = 0;
  /// Where its tensors are.
  [[nodiscard]] virtual Device device() const = 0;
  /// "TCP" or "NCCL 2.27.3".
  [[nodiscard]] virtual std::string name() const = 0;

  /// In place: every rank receives the sum, or the sum times 1/world.
  virtual Pending all_reduce(const Tensor& tensor, Combine combine, std::string_view label) = 0;
  /// In place, with the bits of all_reduce: of `tensor` (world*n elements) rank r receives the reduced elements from r*n to
  /// (r + 1)*n; the others are undefined afterwards.
  virtual Pending reduce_scatter(const Tensor& tensor, Combine combine, std::string_view label) = 0;
  /// In place: of `tensor` (world*n elements) rank r gives the elements from r*n to (r + 1)*n and receives all others.
  virtual Pending all_gather(const Tensor& tensor, std::string_view label) = 0;
  /// In place: every rank receives root's elements.
  virtual Pending broadcast(const Tensor& tensor, int root, std::string_view label) = 0;

  /// May be called from any thread.
  [[nodiscard]] virtual Activity activity() const = 0;
  /// Ends operations that do not look at the group's failure themselves. May be called from any thread.
  virtual void cancel() {}
  /// Finishes what was started; no operation may follow.
  virtual void close() {}
};

}  // namespace polyphase::distributed
