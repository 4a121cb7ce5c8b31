#pragma once
// The processes that train one network together.
//
//   pp::distributed::Group group = pp::distributed::init();          // alone, or as torchrun, mpirun or srun say
//   Net net;                                                         // on group.device()
//   pp::distributed::DataParallel parallel(group, net);              // ranks start with rank 0's weights
//   ...
//   loss.backward();                                                 // gradients are averaged meanwhile
//   optimizer.step();
//   if (!group.end_step()) break;                                    // SIGTERM: save and leave
//   group.out(std::cout) << "loss " << loss.item() << '\n';          // rank 0 only

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "../distributed/communicator.hpp"
#include "../distributed/place.hpp"
#include "../tensor/device.hpp"

namespace polyphase::distributed {

struct GroupOptions {
  /// None: find_place().
  std::optional<Place> place{};
  /// None: cuda:LOCAL_RANK if there is a GPU for every process of the host, else cpu. A GPU needs NCCL (libnccl.so.2), which is
  /// loaded at run time from POLYPHASE_NCCL or the library path.
  std::optional<Device> device{};
  /// A rank that does not answer, or does not reach an operation in which others wait, for this long is hung. None:
  /// POLYPHASE_TIMEOUT in seconds, else 30 s.
  std::optional<std::chrono::milliseconds> timeout{};
  /// SIGTERM makes end_step() return false instead of ending the process, until the group is destroyed.
  bool stop_on_sigterm = true;
};

/// A handle on this process' membership of a group; copies share it. Not thread safe.
class Group {
 public:
  [[nodiscard]] int rank() const;
  [[nodiscard]] int world() const;
  [[nodiscard]] const Place& place() const;
  /// Whether this is rank 0, which writes logs and files.
  [[nodiscard]] bool is_first() const { return rank() == 0; }
  /// The device of this process' tensors.
  [[nodiscard]] Device device() const;
  /// For tensors on device(). Throws Error for a group of one process, which has none.
  [[nodiscard]] Communicator& communicator() const;
  /// For tensors on the CPU, over TCP.
  [[nodiscard]] Communicator& host_communicator() const;
  /// `stream` on rank 0; on the others a stream that discards everything.
  [[nodiscard]] std::ostream& out(std::ostream& stream) const;

  /// Call after every training step: counts it (errors name the step) and runs the checks that are due (on_step). Returns false
  /// if training shall stop after this step, on all ranks after the same one: a rank got SIGTERM or called request_stop().
  [[nodiscard]] bool end_step();
  [[nodiscard]] std::int64_t step() const;
  /// Continues the count of a resumed run.
  void set_step(std::int64_t step);
  /// Makes end_step() return false on all ranks soon. From any thread.
  void request_stop();
  /// Has `check` called by end_step() with the number of finished steps, until the returned handle is destroyed. All ranks must
  /// add the same checks in the same order.
  [[nodiscard]] std::shared_ptr<void> on_step(std::function<void(std::int64_t step)> check);

  /// Ends all ranks: throws DistributedError here, and there from what they wait in. The text is "rank 1 on HOST: `what` (step
  /// 12)".
  [[noreturn]] void fail(const std::string& what);
  /// The same for a failure that all ranks have found together: each calls it with the same `what` and `who`, which is the
  /// guilty rank (name()) or empty.
  [[noreturn]] void fail(const std::string& what, const std::string& who, bool should_print);
  /// "rank 1 on HOST".
  [[nodiscard]] std::string name() const { return name_of(rank()); }
  [[nodiscard]] std::string name_of(int rank) const;
  /// Returns when all ranks have called it.
  void barrier(std::string_view label = "barrier");

  struct State;  // not for users
  explicit Group(std::shared_ptr<State> state) : state_(std::move(state)) {}
  [[nodiscard]] State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Meets the other processes of the job. A GPU becomes the calling thread's current device. With one process it connects to
/// nothing and starts no thread. Throws DistributedError in one sentence if a process does not come within the timeout, the
/// address is in use, or device and options do not fit.
[[nodiscard]] Group init(const GroupOptions& options = {});

}  // namespace polyphase::distributed
