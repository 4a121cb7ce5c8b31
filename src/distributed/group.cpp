#include "distributed/group.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <ostream>
#include <streambuf>

#include "cuda/runtime/presence.hpp"
#include "distributed/group_state.hpp"
#include "distributed/network/meeting.hpp"
#include "distributed/network/nccl.hpp"
#include "distributed/network/ring.hpp"
#include "tensor/tensor_backend.hpp"

namespace polyphase::distributed {
namespace {

using std::chrono::milliseconds;

std::atomic<bool> terminated{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_sigterm(int) { terminated.store(true); }

class NullBuffer : public std::streambuf {
 protected:
  int_type overflow(int_type character) override { return traits_type::not_eof(character); }
  std::streamsize xsputn(const char_type*, std::streamsize count) override { return count; }
};

milliseconds timeout_of(const GroupOptions& options) {
  const char* text = std::getenv("POLYPHASE_TIMEOUT");
  if (options.timeout || text == nullptr) {
    const milliseconds timeout = options.timeout.value_or(milliseconds(30'000));
    require<DistributedError>(timeout.count() >= 100, "distributed::init: expected a timeout of at least 100 ms, got ",
                              timeout.count(), " ms");
    return timeout;
  }
  double seconds = 0;
  const std::string_view value = text;
  const auto result = std::from_chars(value.data(), value.data() + value.size(), seconds);
  require<DistributedError>(
      result.ec == std::errc{} && result.ptr == value.data() + value.size() && seconds >= 0.1 && seconds <= 1e6,
      "distributed::init: expected POLYPHASE_TIMEOUT in seconds from 0.1 to 1000000, got \"", value, "\"");
  return milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// A launcher may show every process its own GPU only, which is then cuda:0.
Device device_of(const GroupOptions& options, const Place& place) {
  if (options.device) return *options.device;
  const int count = polyphase::device_count(DeviceType::cuda);
  if (count == 0) return Device::cpu();
  const int index = place.local_rank < count ? place.local_rank : 0;
  require<DistributedError>(place.local_rank < count || count == 1, "distributed::init: rank ", place.rank, " is process ",
                            place.local_rank, " of its host, which has ", count, " GPUs");
  return Device::cuda(index);
}

void check(const Place& place) {
  require<DistributedError>(place.world >= 1, "distributed::init: expected a world of at least 1, got ", place.world);
  require<DistributedError>(place.rank >= 0 && place.rank < place.world, "distributed::init: expected a rank from 0 to ",
                            place.world - 1, ", got ", place.rank);
}

void connect(Group::State& state, const GroupOptions& options) {
  const Place& place = state.place;
  const milliseconds timeout = timeout_of(options);
  // Ranks with other GPUs or another version of the library would have other bits.
  const std::string settings =
      concat("polyphase of protocol 1 on ", state.device.is_cuda() ? cuda::describe_device(state.device.index) : "the CPU");
  Connections connections = meet(place, settings, timeout);
  state.hosts = connections.hosts;
  state.failure = std::make_shared<Failure>();
  state.host = make_ring({.rank = place.rank,
                          .world = place.world,
                          .hosts = connections.hosts,
                          .next = std::move(connections.next),
                          .previous = std::move(connections.previous)},
                         state.failure);
  state.watchdog = std::make_unique<Watchdog>(WatchdogOptions{.rank = place.rank,
                                                              .timeout = timeout,
                                                              .hosts = connections.hosts,
                                                              .controls = std::move(connections.controls),
                                                              .activity = [&state] { return state.activity(); },
                                                              .cancel = [&state] { state.cancel(); },
                                                              .stop_requested = [&state] { return state.should_stop(); }},
                                              state.failure);
  if (!state.device.is_cuda()) return;
  std::shared_ptr<Communicator> nccl =
      make_nccl({.rank = place.rank, .world = place.world, .device = state.device, .timeout = timeout, .hosts = state.hosts},
                *state.host, state.failure);
  const std::lock_guard lock(state.mutex);
  state.nccl = std::move(nccl);
}

}  // namespace

void Group::State::watch_sigterm() {
  struct sigaction action {};
  action.sa_handler = on_sigterm;
  action.sa_flags = SA_RESTART;
  watches_sigterm = ::sigaction(SIGTERM, &action, &previous_action) == 0;
  if (previous_action.sa_handler != on_sigterm) terminated.store(false);  // one that ended an earlier group
}

bool Group::State::should_stop() const { return (watches_sigterm && terminated.load()) || stop_requested.load(); }

Activity Group::State::activity() const {
  const std::lock_guard lock(mutex);
  const Activity of_host = host->activity();
  if (!nccl) return of_host;
  // Both count: the order of all operations is the same on all ranks.
  Activity sum = nccl->activity();
  if (sum.label.empty() || (!of_host.label.empty() && of_host.age > sum.age)) sum.label = of_host.label, sum.age = of_host.age;
  sum.started += of_host.started;
  sum.finished += of_host.finished;
  return sum;
}

void Group::State::cancel() const {
  const std::lock_guard lock(mutex);
  if (nccl) nccl->cancel();
}

Group::State::~State() {
  if (watches_sigterm) (void)::sigaction(SIGTERM, &previous_action, nullptr);
  if (!watchdog) return;
  // The others learn that this process ends; it prints its own error.
  if (std::uncaught_exceptions() > exceptions)
    failure->set(concat("rank ", place.rank, " on ", hosts[static_cast<std::size_t>(place.rank)],
                        " ended with an error of its own at step ", watchdog->step()),
                 false);
  if (nccl) nccl->close();  // without the mutex: the watchdog looks on while this waits
  {
    const std::lock_guard lock(mutex);
    nccl.reset();
  }
  host->close();
  watchdog.reset();  // says goodbye
}

int Group::rank() const { return state_->place.rank; }
int Group::world() const { return state_->place.world; }
const Place& Group::place() const { return state_->place; }
Device Group::device() const { return state_->device; }

Communicator& Group::communicator() const {
  require<Error>(state_->host != nullptr, "Group::communicator: a group of one process has none");
  return state_->nccl ? *state_->nccl : *state_->host;
}

Communicator& Group::host_communicator() const {
  require<Error>(state_->host != nullptr, "Group::host_communicator: a group of one process has none");
  return *state_->host;
}

std::ostream& Group::out(std::ostream& stream) const {
  static NullBuffer buffer;
  static std::ostream nothing(&buffer);
  return is_first() ? stream : nothing;
}

bool Group::end_step() {
  if (world() == 1) {
    ++state_->step;
    return !state_->should_stop();
  }
  state_->failure->check();
  const std::int64_t finished = step() + 1;
  for (const std::weak_ptr<std::function<void(std::int64_t)>>& weak : state_->checks)
    if (const auto check = weak.lock()) (*check)(finished);
  return state_->watchdog->end_step();
}

std::int64_t Group::step() const { return world() == 1 ? state_->step : state_->watchdog->step(); }

void Group::set_step(std::int64_t step) { world() == 1 ? void(state_->step = step) : state_->watchdog->set_step(step); }

void Group::request_stop() { state_->stop_requested.store(true); }

std::shared_ptr<void> Group::on_step(std::function<void(std::int64_t step)> check) {
  auto handle = std::make_shared<std::function<void(std::int64_t)>>(std::move(check));
  std::erase_if(state_->checks, [](const auto& weak) { return weak.expired(); });
  state_->checks.push_back(handle);
  return handle;
}

std::string Group::name_of(int rank) const {
  return concat("rank ", rank, " on ", world() == 1 ? host_name() : state_->hosts[static_cast<std::size_t>(rank)]);
}

void Group::fail(const std::string& what) { fail(what, name(), true); }

void Group::fail(const std::string& what, const std::string& who, bool should_print) {
  const std::string text = concat(who.empty() ? "" : who + ": ", what, " (step ", step(), ")");
  if (world() > 1) {
    state_->failure->set(text, should_print);
    state_->failure->check();
  }
  throw DistributedError(text);
}

void Group::barrier(std::string_view label) {
  if (world() == 1) return;
  // Every rank's element is in the sum.
  state_->host->all_reduce(Tensor::zeros({1}, {.dtype = DType::f64, .device = Device::cpu()}), Combine::sum, label).wait();
}

Group init(const GroupOptions& options) {
  auto state = std::make_shared<Group::State>();
  state->place = options.place ? *options.place : find_place();
  check(state->place);
  state->device = device_of(options, state->place);
  // Else every call of the runtime on this thread would also take memory of device 0.
  if (state->device.is_cuda()) cuda::make_current(state->device.index);
  if (options.stop_on_sigterm) state->watch_sigterm();
  if (state->place.world > 1) connect(*state, options);
  return Group(std::move(state));
}

}  // namespace polyphase::distributed
