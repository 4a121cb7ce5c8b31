#include "distributed/network/nccl.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda/cuda.hpp"
#include "cuda/runtime/presence.hpp"
#include "distributed/network/shared_library.hpp"
#include "distributed/network/socket.hpp"
#include "tensor/event.hpp"

namespace polyphase::distributed {
namespace {

// The part of NCCL's binary interface that is used here (nccl.h of 2.14; later versions keep it).
using Result = int;
constexpr Result kSuccess = 0, kInProgress = 7;
struct UniqueId {
  std::array<char, 128> bytes;
};
using Comm = void*;
struct Config {  // ncclConfig_t of 2.14
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};
constexpr int kSum = 0, kAverage = 4;
constexpr int kBusyAttempts = 1000;

int type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 7;
    case DType::f64:
      return 8;
    case DType::f16:
      return 6;
    case DType::bf16:
      return 9;
    case DType::i64:
      return 4;
  }
  return -1;
}

struct Functions {
  Result (*get_version)(int*);
  const char* (*get_error_string)(Result);
  Result (*get_unique_id)(UniqueId*);
  Result (*init)(Comm*, int, UniqueId, int, Config*);
  Result (*get_async_error)(Comm, Result*);
  Result (*abort)(Comm);
  Result (*destroy)(Comm);
  Result (*all_reduce)(const void*, void*, std::size_t, int, int, Comm, CUstream_st*);
  Result (*reduce_scatter)(const void*, void*, std::size_t, int, int, Comm, CUstream_st*);
  Result (*all_gather)(const void*, void*, std::size_t, int, Comm, CUstream_st*);
  Result (*broadcast)(const void*, void*, std::size_t, int, int, Comm, CUstream_st*);
};

void set_default(const char* variable, const char* value) { (void)::setenv(variable, value, 0); }

Functions load() {
  // Read by NCCL when it is loaded or connects. Rings of fixed order, so that every run has the same bits; NVLink multicast
  // sums are not repeatable with every driver.
  set_default("NCCL_ALGO", "Ring");
  set_default("NCCL_PROTO", "Simple");
  set_default("NCCL_NVLS_ENABLE", "0");
  // A recorded operation would register its memory with the other GPUs, which outlives a tensor of the caching allocator.
  set_default("NCCL_GRAPH_REGISTER", "0");
  const SharedLibrary library("POLYPHASE_NCCL", {"libnccl.so.2", "libnccl.so"}, "NCCL");
  Functions functions{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
  };
  find(functions.get_version, "ncclGetVersion");
  find(functions.get_error_string, "ncclGetErrorString");
  find(functions.get_unique_id, "ncclGetUniqueId");
  find(functions.init, "ncclCommInitRankConfig");
  find(functions.get_async_error, "ncclCommGetAsyncError");
  find(functions.abort, "ncclCommAbort");
  find(functions.destroy, "ncclCommDestroy");
  find(functions.all_reduce, "ncclAllReduce");
  find(functions.reduce_scatter, "ncclReduceScatter");
  find(functions.all_gather, "ncclAllGather");
  find(functions.broadcast, "ncclBroadcast");
  return functions;
}

std::string version_text(int version) {  // 22803 is 2.28.3
  return concat("NCCL ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

class Nccl : public Communicator {
 public:
  Nccl(const NcclOptions& options, Communicator& host, std::shared_ptr<Failure> failure)
      : options_(options), failure_(std::move(failure)), nccl_(load()), stream_(options.device.index, true) {
    check("ncclGetVersion", nccl_.get_version(&version_));
    require_same_version(host);
    require_own_gpu(host);
    connect(share_id(host));
  }

  ~Nccl() override { Nccl::close(); }

  [[nodiscard]] int rank() const override { return options_.rank; }
  [[nodiscard]] int world() const override { return options_.world; }
  [[nodiscard]] Device device() const override { return options_.device; }
  [[nodiscard]] std::string name() const override { return version_text(version_); }

  Pending all_reduce(const Tensor& tensor, Combine combine, std::string_view label) override {
    return start("all_reduce", tensor, label, [&](CUstream_st* stream) {
      return nccl_.all_reduce(tensor.raw(), tensor.raw(), count_of(tensor), type_of(tensor.dtype()), op_of(combine, tensor),
                              comm_, stream);
    });
  }

  Pending reduce_scatter(const Tensor& tensor, Combine combine, std::string_view label) override {
    const std::size_t share = share_of("reduce_scatter", tensor);
    return start("reduce_scatter", tensor, label, [&](CUstream_st* stream) {
      return nccl_.reduce_scatter(tensor.raw(), own_share(tensor, share), share, type_of(tensor.dtype()),
                                  op_of(combine, tensor), comm_, stream);
    });
  }

  Pending all_gather(const Tensor& tensor, std::string_view label) override {
    const std::size_t share = share_of("all_gather", tensor);
    return start("all_gather", tensor, label, [&](CUstream_st* stream) {
      return nccl_.all_gather(own_share(tensor, share), tensor.raw(), share, type_of(tensor.dtype()), comm_, stream);
    });
  }

  Pending broadcast(const Tensor& tensor, int root, std::string_view label) override {
    require<ShapeError>(root >= 0 && root < world(), "broadcast: expected a root from 0 to ", world() - 1, ", got ", root);
    return start("broadcast", tensor, label, [&](CUstream_st* stream) {
      return nccl_.broadcast(tensor.raw(), tensor.raw(), count_of(tensor), type_of(tensor.dtype()), root, comm_, stream);
    });
  }

  [[nodiscard]] Activity activity() const override {
    const std::lock_guard lock(mutex_);
    try {
      cuda::make_current(options_.device.index);  // of the watchdog's thread
      forget_finished();
    } catch (const DeviceError& error) {
      failure_->set(concat(name_of(rank()), ": ", error.what()), true);
    }
    Activity activity{.started = started_, .finished = started_ - static_cast<std::int64_t>(running_.size())};
    if (running_.empty()) return activity;
    activity.label = running_.front().label;
    activity.age = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - running_.front().began);
    return activity;
  }

  void cancel() override {
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) (void)nccl_.abort(std::exchange(comm_, nullptr));
  }

  // Destroying returns when the other GPUs of this host no longer read this one's memory. A failed job's work is ended.
  void close() override {
    if (!has_ended()) return cancel();
    Comm comm = nullptr;
    {
      const std::lock_guard lock(mutex_);
      comm = std::exchange(comm_, nullptr);
      running_.clear();
    }
    if (comm != nullptr) (void)nccl_.destroy(comm);
  }

 private:
  struct Running {
    Event done;
    std::string label;
    Clock::time_point began;
  };

  // The current stream waits for the communicator's.
  class Wait : public Pending::State {
   public:
    Wait(const Nccl& nccl, Tensor tensor) : nccl_(nccl), tensor_(std::move(tensor)) {}
    void wait() override {
      nccl_.failure_->check();
      nccl_.stream_.let_current_wait();
      tensor_ = {};
    }

   private:
    const Nccl& nccl_;
    Tensor tensor_;
  };

  // Waits for the stream's work, as long as the job has not failed. Called by destructors.
  [[nodiscard]] bool has_ended() const noexcept {
    try {
      Event end(options_.device);
      {
        const cuda::StreamGuard guard(stream_);
        end.record();
      }
      while (!failure_->is_set() && !end.is_done()) std::this_thread::sleep_for(std::chrono::microseconds(100));
      return !failure_->is_set();
    } catch (const std::exception&) {
      return false;  // the device is lost
    }
  }

  [[nodiscard]] std::string name_of(int rank) const {
    return concat("rank ", rank, " on ", options_.hosts[static_cast<std::size_t>(rank)]);
  }

  static std::size_t count_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

  [[nodiscard]] std::size_t share_of(const char* operation, const Tensor& tensor) const {
    require<ShapeError>(tensor.numel() % world() == 0, operation, ": expected a multiple of world=", world(), " elements, got ",
                        tensor.numel());
    return count_of(tensor) / static_cast<std::size_t>(world());
  }
  [[nodiscard]] void* own_share(const Tensor& tensor, std::size_t share) const {
    return static_cast<char*>(tensor.raw()) + share * size_of(tensor.dtype()) * static_cast<std::size_t>(rank());
  }
  static int op_of(Combine combine, const Tensor& tensor) {
    require<DTypeError>(combine == Combine::sum || is_floating_point(tensor.dtype()),
                        "expected floating point for an average, got ", tensor.dtype());
    return combine == Combine::average ? kAverage : kSum;
  }

  void check(const char* call, Result result) const {
    require<DistributedError>(result == kSuccess || result == kInProgress, call, " on ", options_.device,
                              " failed: ", nccl_.get_error_string(result));
  }

  // Calls do not block; this waits until the last one is through, unless the job fails meanwhile.
  void finish_call(const char* call, Result result, Clock::time_point deadline) {
    for (int attempt = 0; result == kInProgress; ++attempt) {
      failure_->check();
      if (Clock::now() > deadline) {
        // Ending it may wait too: the watchdog does that.
        failure_->set(concat(call, " on ", options_.device, " of ", name_of(rank()), " did not end within ",
                             static_cast<double>(options_.timeout.count()) / 1000, " s"),
                      true);
        failure_->check();
      }
      // An operation is launched within some tens of microseconds; connecting takes longer.
      attempt < kBusyAttempts ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(20));
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) continue;  // aborted: the failure is set
      const Result status = nccl_.get_async_error(comm_, &result);
      if (status != kSuccess) result = status;
    }
    check(call, result);
  }

  void require_same_version(Communicator& host) const {
    std::vector<std::int64_t> versions(static_cast<std::size_t>(world()));
    const Tensor all = Tensor::zeros({world()}, {.dtype = DType::i64, .device = Device::cpu()});
    all.data<std::int64_t>()[rank()] = version_;
    host.all_gather(all, "NCCL's version").wait();
    for (int r = 0; r < world(); ++r) {
      const auto version = static_cast<int>(all.data<std::int64_t>()[r]);
      require<DistributedError>(version == version_, "distributed::init: ", name_of(r), " has ", version_text(version),
                                ", rank ", rank(), " has ", version_text(version_));
    }
  }

  // NCCL itself only says "invalid usage".
  void require_own_gpu(Communicator& host) const {
    const Tensor all = Tensor::zeros({world(), 2}, {.dtype = DType::i64, .device = Device::cpu()});
    std::ranges::copy(cuda::device_uuid(options_.device.index), all.data<std::int64_t>() + 2 * rank());
    host.all_gather(all, "the GPUs").wait();
    std::map<std::array<std::int64_t, 2>, int> owners;
    for (int r = 0; r < world(); ++r) {
      const std::int64_t* uuid = all.data<std::int64_t>() + 2 * static_cast<std::ptrdiff_t>(r);
      const auto [owner, is_new] = owners.try_emplace({uuid[0], uuid[1]}, r);
      require<DistributedError>(is_new, "distributed::init: expected a GPU for each rank, ", name_of(owner->second), " and ",
                                name_of(r), " have the same");
    }
  }

  [[nodiscard]] UniqueId share_id(Communicator& host) const {
    UniqueId id{};
    if (rank() == 0) check("ncclGetUniqueId", nccl_.get_unique_id(&id));
    const Tensor bytes =
        Tensor::zeros({static_cast<std::int64_t>(sizeof id / 8)}, {.dtype = DType::i64, .device = Device::cpu()});
    std::memcpy(bytes.raw(), &id, sizeof id);
    host.broadcast(bytes, 0, "NCCL's id").wait();
    std::memcpy(&id, bytes.raw(), sizeof id);
    return id;
  }

  void connect(const UniqueId& id) {
    const cuda::CurrentDevice current(options_.device.index);
    Config config;
    Comm comm = nullptr;
    const Result result = nccl_.init(&comm, world(), id, rank(), &config);
    {
      const std::lock_guard lock(mutex_);
      comm_ = comm;
    }
    finish_call("ncclCommInitRankConfig", result, Clock::now() + options_.timeout);
  }

  template <class Call>
  Pending start(const char* operation, const Tensor& tensor, std::string_view label, const Call& call) {
    require<DeviceError>(tensor.device() == options_.device, operation, ": expected a tensor on ", options_.device,
                         ", got one on ", tensor.device());
    require<ShapeError>(tensor.is_contiguous(), operation, ": expected a contiguous tensor, got strides ", tensor.strides());
    failure_->check();
    tensor.storage().bump_version();
    stream_.wait_for_current();
    Result result = kSuccess;
    {
      const cuda::CurrentDevice current(options_.device.index);
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr) result = call(stream_.get());
    }
    finish_call(operation, result, Clock::now() + options_.timeout);
    if (!cuda::capturing()) remember(concat(operation, " \"", label, "\""));
    return Pending(std::make_shared<Wait>(*this, tensor.detach()));
  }

  void remember(std::string label) {
    Event done(options_.device);
    const cuda::StreamGuard guard(stream_);
    done.record();
    const std::lock_guard lock(mutex_);
    forget_finished();
    ++started_;
    running_.push_back({std::move(done), std::move(label), Clock::now()});
  }

  void forget_finished() const {
    while (!running_.empty() && running_.front().done.is_done()) running_.pop_front();
  }

  NcclOptions options_;
  std::shared_ptr<Failure> failure_;
  Functions nccl_;
  cuda::Stream stream_;
  int version_ = 0;
  mutable std::mutex mutex_;
  Comm comm_ = nullptr;
  std::int64_t started_ = 0;
  mutable std::deque<Running> running_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl(const NcclOptions& options, Communicator& host, std::shared_ptr<Failure> failure) {
  return std::make_unique<Nccl>(options, host, std::move(failure));
}

}  // namespace polyphase::distributed
