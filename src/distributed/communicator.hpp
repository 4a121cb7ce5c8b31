#pragma once
// Operations in which all processes of a group take part.

#include <cstdint>
#include <memory>
#include <string>

#include "../tensor/error.hpp"
#include "../tensor/tensor.hpp"

namespace polyphase::distributed {

/// A failed job: a rank that is dead, hung, has diverged or does not fit. All ranks throw it with the same text, which names
/// the rank, its host, the step and the operation. Nothing can be sent afterwards; end the process with a nonzero exit code.
class DistributedError : public Error {
 public:
  explicit DistributedError(const std::string& what, bool should_print = true) : Error(what), should_print_(should_print) {}
  /// Whether this rank should print the text: the first living one and the guilty one.
  [[nodiscard]] bool should_print() const noexcept { return should_print_; }

 private:
  bool should_print_;
};

enum class Reduction : std::uint8_t { sum, average };

/// An operation that was started.
class Pending {
 public:
  Pending() = default;
  /// On the CPU waits until the operation is done; on a GPU makes the calling thread's current stream wait, not the host. Throws
  /// DistributedError if it failed. Does nothing the second time, and without an operation.
  void wait();

  struct State;  // not for users
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// Moves tensors between the processes of a group. All ranks must call the same operations in the same order with tensors of
/// the same size and dtype: over TCP anything else is an error that names the ranks. An operation starts at once and does not wait; its
/// tensors must not be read or written until wait(). Tensors are contiguous, all on the group's device. `label` names the
/// operation in errors; it must outlive the program (a literal) . Results have the same bits on all ranks and in every run.
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
  /// "TCP" or "NCCL 2.27.3".
  [[nodiscard]] virtual std::string name() const = 0;

  /// In place: every rank receives the sum, or the sum times 1/world.
  virtual Pending all_reduce(const Tensor& tensor, Reduction reduction, const char* label) = 0;
  /// In place, with the bits of all_reduce: of `tensor` (world*n elements) rank r receives the reduced elements from r*n to
  /// (r + 1)*n; the others are undefined afterwards.
  virtual Pending reduce_scatter(const Tensor& tensor, Reduction reduction, const char* label) = 0;
  /// In place: of `tensor` (world*n elements) rank r gives the elements from r*n to (r + 1)*n and receives all others.
  virtual Pending all_gather(const Tensor& tensor, const char* label) = 0;
  /// In place: every rank receives root's elements.
  virtual Pending broadcast(const Tensor& tensor, int root, const char* label) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier(const char* label) = 0;
};

}  // namespace polyphase::distributed
