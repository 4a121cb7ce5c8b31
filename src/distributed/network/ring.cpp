#include "distributed/network/ring.hpp"

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include "distributed/network/ring_transfer.hpp"

namespace polyphase::distributed {
namespace {

enum class Kind : std::int64_t { all_reduce, reduce_scatter, all_gather, broadcast };

const char* name_of_kind(std::int64_t kind) {
  static constexpr std::array kNames{"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
  return kind >= 0 && kind < static_cast<std::int64_t>(kNames.size()) ? kNames[static_cast<std::size_t>(kind)] : "no operation";
}

// What all ranks must agree on; sent to the next rank before every operation.
struct Header {
  std::int64_t sequence;
  std::int64_t kind;
  std::int64_t dtype;
  std::int64_t count;
  std::int64_t detail;  // reduction or root
  std::array<char, 40> label;
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(std::is_trivially_copyable_v<Header>);

std::string describe(const Header& header) {
  return concat(name_of_kind(header.kind), " \"", header.label.data(), "\" of ", header.count, " elements of ",
                static_cast<DType>(header.dtype), " (operation ", header.sequence, ")");
}

struct Operation {
  Header header;
  Tensor tensor;
  std::function<RingTransfer()> transfer;
};

class Completion : public Pending::State {
 public:
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
    if (error_) std::rethrow_exception(error_);
  }
  void finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::exception_ptr error_;
};

class Ring : public Communicator {
 public:
  Ring(RingOptions options, std::shared_ptr<Failure> failure)
      : options_(std::move(options)), failure_(std::move(failure)), thread_([this] { serve(); }) {}

  ~Ring() override { Ring::close(); }

  // Operations that nobody waits for are still finished: other ranks need this one's part.
  void close() override {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] int rank() const override { return options_.rank; }
  [[nodiscard]] int world() const override { return options_.world; }
  [[nodiscard]] Device device() const override { return Device::cpu(); }
  [[nodiscard]] std::string name() const override { return "TCP"; }

  Pending all_reduce(const Tensor& tensor, Combine combine, std::string_view label) override {
    return start(Kind::all_reduce, tensor, static_cast<std::int64_t>(combine), label, [=, this] {
      return all_reduce_transfer(bytes_of(tensor), tensor.numel(), tensor.dtype(), rank(), world(), scale_of(combine));
    });
  }

  Pending reduce_scatter(const Tensor& tensor, Combine combine, std::string_view label) override {
    require_shares("reduce_scatter", tensor);
    return start(Kind::reduce_scatter, tensor, static_cast<std::int64_t>(combine), label, [=, this] {
      return reduce_scatter_transfer(bytes_of(tensor), tensor.numel(), tensor.dtype(), rank(), world(), scale_of(combine));
    });
  }

  Pending all_gather(const Tensor& tensor, std::string_view label) override {
    require_shares("all_gather", tensor);
    return start(Kind::all_gather, tensor, 0, label,
                 [=, this] { return all_gather_transfer(bytes_of(tensor), tensor.numel(), tensor.dtype(), rank(), world()); });
  }

  Pending broadcast(const Tensor& tensor, int root, std::string_view label) override {
    require<ShapeError>(root >= 0 && root < world(), "broadcast: expected a root from 0 to ", world() - 1, ", got ", root);
    return start(Kind::broadcast, tensor, root, label, [=, this] {
      return broadcast_transfer(bytes_of(tensor), tensor.numel(), tensor.dtype(), rank(), world(), root);
    });
  }

  [[nodiscard]] Activity activity() const override {
    const std::lock_guard lock(mutex_);
    Activity activity{.started = started_, .finished = finished_};
    if (started_ == finished_) return activity;
    activity.label = concat(name_of_kind(current_.kind), " \"", current_.label.data(), "\"");
    activity.age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
    return activity;
  }

 private:
  struct Job {
    Operation operation;
    std::shared_ptr<Completion> completion;
  };

  static char* bytes_of(const Tensor& tensor) { return static_cast<char*>(tensor.raw()); }
  [[nodiscard]] double scale_of(Combine combine) const { return combine == Combine::average ? 1.0 / world() : 1.0; }

  void require_shares(const char* operation, const Tensor& tensor) const {
    require<ShapeError>(tensor.numel() % world() == 0, operation, ": expected a multiple of world=", world(), " elements, got ",
                        tensor.numel());
  }

  Pending start(Kind kind, const Tensor& tensor, std::int64_t detail, std::string_view label,
                std::function<RingTransfer()> transfer) {
    const char* operation = name_of_kind(static_cast<std::int64_t>(kind));
    require<DeviceError>(tensor.device().is_cpu(), operation, " over TCP: expected a tensor on cpu, got one on ",
                         tensor.device());
    require<ShapeError>(tensor.is_contiguous(), operation, ": expected a contiguous tensor, got strides ", tensor.strides());
    const bool averages_integers =
        detail == static_cast<std::int64_t>(Combine::average) && kind != Kind::broadcast && !is_floating_point(tensor.dtype());
    require<DTypeError>(!averages_integers, operation, ": expected floating point for an average, got ", tensor.dtype());
    failure_->check();
    tensor.storage().bump_version();
    Header header{};
    header.kind = static_cast<std::int64_t>(kind);
    header.dtype = static_cast<std::int64_t>(tensor.dtype());
    header.count = tensor.numel();
    header.detail = detail;
    label.copy(header.label.data(), header.label.size() - 1);
    Job job{{header, tensor.detach(), std::move(transfer)}, std::make_shared<Completion>()};
    Pending pending(job.completion);
    const std::lock_guard lock(mutex_);
    job.operation.header.sequence = queued_++;
    jobs_.push_back(std::move(job));
    changed_.notify_all();
    return pending;
  }

  [[nodiscard]] std::optional<Job> next_job() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return std::nullopt;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++started_;
    current_ = job.operation.header;
    began_ = Clock::now();
    return job;
  }

  void serve() {
    while (std::optional<Job> job = next_job()) {
      std::exception_ptr error;
      try {
        run_operation(job->operation);
      } catch (...) {
        error = std::current_exception();
      }
      if (!error) {
        const std::lock_guard lock(mutex_);
        ++finished_;
      }
      const std::shared_ptr<Completion> completion = job->completion;
      job.reset();  // the tensor's memory
      completion->finish(error);
    }
  }

  void run_operation(const Operation& operation) {
    failure_->check();
    try {
      exchange_headers(operation.header);
      run(operation.transfer(), options_.next, options_.previous, *failure_, scratch_);
    } catch (const DistributedError& error) {
      // The connection broke; who is to blame is for the watchdog to say.
      failure_->raise(concat(host_of(rank()), ": ", describe(operation.header), ": ", error.what()), kPatience);
    }
  }

  void exchange_headers(const Header& mine) {
    Header sent = mine, theirs{};
    RingTransfer transfer{.sends = {{.data = reinterpret_cast<char*>(&sent), .bytes = sizeof sent}},
                          .receives = {{.data = reinterpret_cast<char*>(&theirs), .bytes = sizeof theirs}},
                          .ready = sizeof sent};
    run(transfer, options_.next, options_.previous, *failure_, scratch_);
    if (theirs == mine) return;
    theirs.label.back() = '\0';
    failure_->set(concat(host_of((rank() + world() - 1) % world()), " is in ", describe(theirs), ", ", host_of(rank()), " in ",
                         describe(mine), ": the ranks run different code or have different data"),
                  true);
    failure_->check();
  }

  [[nodiscard]] std::string host_of(int rank) const {
    return concat("rank ", rank, " on ", options_.hosts[static_cast<std::size_t>(rank)]);
  }

  static constexpr std::chrono::milliseconds kPatience{2000};

  RingOptions options_;
  std::shared_ptr<Failure> failure_;
  std::vector<char> scratch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::int64_t queued_ = 0, started_ = 0, finished_ = 0;
  Header current_{};
  Clock::time_point began_{};
  bool is_closing_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace

std::unique_ptr<Communicator> make_ring(RingOptions options, std::shared_ptr<Failure> failure) {
  return std::make_unique<Ring>(std::move(options), std::move(failure));
}

}  // namespace polyphase::distributed
