#include "distributed/watchdog.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "distributed/distributed_error.hpp"

namespace polyphase::distributed {
namespace {

using std::chrono::milliseconds;

enum class Word : std::int64_t { status, failed, verdict, stop_request, stop_query, stop_bound, stop_at, goodbye };

// What a rank last said of itself.
struct Status {
  std::int64_t step = 0;
  Activity activity{};
};

Message word(Word kind) { return std::move(Message().put(static_cast<std::int64_t>(kind))); }

Message status_message(const Status& status) {
  const Activity& activity = status.activity;
  return std::move(word(Word::status)
                       .put(status.step)
                       .put(activity.started)
                       .put(activity.finished)
                       .put(activity.age.count())
                       .put(activity.label));
}

Status read_status(Message& message) {
  Status status;
  status.step = message.number();
  status.activity.started = message.number();
  status.activity.finished = message.number();
  status.activity.age = milliseconds(message.number());
  status.activity.label = message.text();
  return status;
}

// The connection to one other rank.
struct Peer {
  int rank = 0;
  Socket socket{};
  std::vector<char> received{};
  Clock::time_point heard{};
  Status status{};
  bool has_left = false;
  bool is_open = true;
  std::optional<std::int64_t> stop_bound{};
};

std::string seconds(milliseconds time) { return concat(static_cast<double>(time.count()) / 1000, " s"); }

}  // namespace

class Watchdog::State {
 public:
  State(WatchdogOptions options, std::shared_ptr<Failure> failure)
      : options_(std::move(options)),
        failure_(std::move(failure)),
        period_(std::clamp(options_.timeout / 8, milliseconds(10), milliseconds(500))),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < options_.controls.size(); ++i) {
      if (!options_.controls[i]) continue;
      peers_.emplace_back();
      peers_.back().rank = static_cast<int>(i);
      peers_.back().socket = std::move(options_.controls[i]);
      peers_.back().heard = now;
    }
    thread_ = std::thread([this] { serve(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex_);
      is_leaving_ = true;
      changed_.notify_all();
    }
    wake();
    thread_.join();
    ::close(wake_);
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] bool end_step() {
    std::unique_lock lock(mutex_);
    ++step_;
    if (!is_asked_) return true;
    changed_.wait(lock, [&] { return stop_at_.has_value() || failure_->is_set(); });
    failure_->check();
    return step_ < *stop_at_;
  }
  [[nodiscard]] std::int64_t step() const {
    const std::lock_guard lock(mutex_);
    return step_;
  }
  void set_step(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
  }

 private:
  [[nodiscard]] bool is_judge() const { return options_.rank == 0; }
  [[nodiscard]] std::string name_of(int rank) const {
    return concat("rank ", rank, " on ", options_.hosts[static_cast<std::size_t>(rank)]);
  }
  void wake() const {
    const std::uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
  }

  // ---- the thread ------------------------------------------------------------------------------------------------
  void serve() {
    Clock::time_point next = Clock::now();
    while (true) {
      wait_until(next);
      for (Peer& peer : peers_) receive(peer);
      if (failure_->is_set()) return end();
      {
        const std::lock_guard lock(mutex_);
        if (is_leaving_) break;
      }
      if (Clock::now() < next) continue;
      next = Clock::now() + period_;
      beat();
    }
    for (Peer& peer : peers_) tell(peer, word(Word::goodbye));
  }

  void wait_until(Clock::time_point time) {
    std::vector<pollfd> polled{{wake_, POLLIN, 0}, {failure_->descriptor(), POLLIN, 0}};
    for (const Peer& peer : peers_)
      if (peer.is_open) polled.push_back({peer.socket.get(), POLLIN, 0});
    const auto left = std::chrono::duration_cast<milliseconds>(time - Clock::now()).count();
    (void)::poll(polled.data(), polled.size(), static_cast<int>(std::max<long long>(left + 1, 0)));
    std::uint64_t ignored = 0;
    (void)!::read(wake_, &ignored, sizeof ignored);
  }

  [[nodiscard]] Status own_status() const { return {step(), options_.activity()}; }

  // Once a period: tells the others what this rank does, and looks at what they do.
  void beat() {
    const Status own = own_status();
    const Clock::time_point now = Clock::now();
    if (now - std::exchange(last_beat_, now) > options_.timeout / 2)  // this process was stopped itself
      for (Peer& peer : peers_) peer.heard = now;
    for (Peer& peer : peers_) tell(peer, status_message(own));
    if (options_.stop_requested() && !std::exchange(has_requested_stop_, true)) request_stop();
    for (const Peer& peer : peers_) judge_silence(peer, own);
    if (is_judge()) judge_operations(own);
  }

  // A closed connection is noticed where it is read.
  static void tell(const Peer& peer, const Message& message) {
    if (!peer.is_open) return;
    try {
      message.send(peer.socket, Clock::now() + milliseconds(100));
    } catch (const DistributedError&) {
      // It has gone or does not read: its silence is judged.
    }
  }

  void receive(Peer& peer) {
    if (!peer.is_open) return;
    try {
      std::array<char, 4096> buffer{};
      while (const std::size_t count = peer.socket.receive_some(buffer.data(), buffer.size())) {
        peer.received.insert(peer.received.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(count));
        peer.heard = Clock::now();
      }
    } catch (const DistributedError&) {
      peer.is_open = false;
    }
    Message message;
    while (Message::take(peer.received, message)) handle(peer, message);
    if (!peer.is_open && !peer.has_left && !failure_->is_set()) judge_closed(peer);
  }

  void handle(Peer& peer, Message& message) {
    switch (static_cast<Word>(message.number())) {
      case Word::status:
        peer.status = read_status(message);
        break;
      case Word::failed: {
        const std::string what = message.text();
        convict(peer.rank, failure_->with_notes(what));
        break;
      }
      case Word::verdict: {
        const bool should_print = message.number() != 0;
        set_failure(message.text(), should_print);
        break;
      }
      case Word::stop_request:
        ask_for_bounds();
        break;
      case Word::stop_query:
        tell(peer, word(Word::stop_bound).put(hold()));
        break;
      case Word::stop_bound:
        peer.stop_bound = message.number();
        agree_to_stop();
        break;
      case Word::stop_at:
        stop_at(message.number());
        break;
      case Word::goodbye:
        peer.has_left = true;
        failure_->add_note(name_of(peer.rank) + " has left");
        break;
    }
  }

  // ---- judging ---------------------------------------------------------------------------------------------------
  // Where this rank is, for texts.
  [[nodiscard]] static std::string place_of(const Status& own, const Status& theirs) {
    const std::string& label = !own.activity.label.empty() ? own.activity.label : theirs.activity.label;
    return concat("at step ", std::max(own.step, theirs.step), label.empty() ? ", between operations" : ", in " + label);
  }

  void judge_closed(const Peer& peer) {
    convict(peer.rank, concat(name_of(peer.rank), " ended without a word ", place_of(own_status(), peer.status)));
  }

  void judge_silence(const Peer& peer, const Status& own) {
    if (!peer.is_open || peer.has_left || Clock::now() - peer.heard < options_.timeout) return;
    convict(peer.rank, concat(name_of(peer.rank), " has not answered for ", seconds(options_.timeout), " ",
                              place_of(own, peer.status), ": it is stopped, or its network is gone"));
  }

  void judge_operations(const Status& own) {
    Activity latest = own.activity;
    int waiting = 0;
    for (const Peer& peer : peers_)
      if (std::pair(peer.status.activity.started, !peer.status.activity.label.empty()) >
          std::pair(latest.started, !latest.label.empty()))
        latest = peer.status.activity, waiting = peer.rank;
    if (latest.label.empty() || latest.age < options_.timeout) return;
    const auto accuse = [&](int rank, const Status& status) {
      const bool has_left = rank != 0 && peers_[static_cast<std::size_t>(rank - 1)].has_left;
      convict(rank, concat(name_of(rank), has_left ? " has left" : " is hung", " at step ", status.step,
                           ": it has not reached ", latest.label, " (operation ", latest.started - 1, "), in which ",
                           name_of(waiting), " has waited ", seconds(options_.timeout)));
    };
    if (own.activity.started < latest.started) return accuse(0, own);
    for (const Peer& peer : peers_)
      if (peer.status.activity.started < latest.started) return accuse(peer.rank, peer.status);
    convict(waiting, concat("all ranks have been in ", latest.label, " at step ", own.step, " for ", seconds(options_.timeout),
                            " without an end: a network between them is slow or broken"));
  }

  // The first living rank and the guilty one print.
  void convict(int guilty, const std::string& what) {
    if (failure_->is_set()) return;
    if (!is_judge()) return set_failure(what, options_.rank == 1);
    tell_verdict(guilty, what);
    set_failure(what, guilty != 0 || options_.rank == 0);
  }

  void tell_verdict(int guilty, const std::string& what) {
    for (const Peer& peer : peers_)
      tell(peer, word(Word::verdict).put(peer.rank == guilty || (guilty == 0 && peer.rank == 1) ? 1 : 0).put(what));
    has_told_ = true;
  }

  void set_failure(const std::string& what, bool should_print) {
    has_told_ = true;
    failure_->set(what, should_print);
  }

  // ---- stopping --------------------------------------------------------------------------------------------------
  void request_stop() {
    if (is_judge()) return ask_for_bounds();
    tell(peers_[0], word(Word::stop_request));
  }

  void ask_for_bounds() {
    if (std::exchange(has_asked_, true)) return;
    own_bound_ = hold();
    for (const Peer& peer : peers_) tell(peer, word(Word::stop_query));
    agree_to_stop();
  }

  // From now on end_step() waits for the agreement: this rank does not get past the step that is returned.
  [[nodiscard]] std::int64_t hold() {
    const std::lock_guard lock(mutex_);
    is_asked_ = true;
    return step_ + 1;
  }

  void agree_to_stop() {
    std::int64_t bound = own_bound_;
    for (const Peer& peer : peers_) {
      if (!peer.stop_bound && !peer.has_left) return;
      bound = std::max(bound, peer.stop_bound.value_or(0));
    }
    for (const Peer& peer : peers_) tell(peer, word(Word::stop_at).put(bound));
    stop_at(bound);
  }

  void stop_at(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    stop_at_ = step;
    changed_.notify_all();
  }

  // ---- ending ----------------------------------------------------------------------------------------------------
  // The job has failed. The main thread gets the text from what it waits in; it may be stuck somewhere else.
  void end() {
    const std::string what = failure_->what();
    if (!std::exchange(has_told_, true))  // found by this rank itself
      is_judge() ? tell_verdict(0, what) : tell(peers_[0], word(Word::failed).put(what));
    {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    }
    std::thread canceller(options_.cancel);  // a device that is stuck may hold it up
    bool is_left = false;
    {
      std::unique_lock lock(mutex_);
      is_left = changed_.wait_for(lock, options_.timeout, [&] { return is_leaving_; });
    }
    if (!is_left) end_process(what, failure_->should_print());
    canceller.join();
  }

  WatchdogOptions options_;
  std::shared_ptr<Failure> failure_;
  milliseconds period_;
  int wake_;
  // Only the thread uses these.
  std::vector<Peer> peers_;  // of rank 0 in order: rank r is element r - 1
  Clock::time_point last_beat_ = Clock::now();
  bool has_told_ = false;
  bool has_requested_stop_ = false;
  bool has_asked_ = false;
  std::int64_t own_bound_ = 0;
  // Shared with the main thread.
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t step_ = 0;
  bool is_asked_ = false;
  std::optional<std::int64_t> stop_at_;
  bool is_leaving_ = false;
  std::thread thread_;
};

Watchdog::Watchdog(WatchdogOptions options, std::shared_ptr<Failure> failure)
    : state_(std::make_unique<State>(std::move(options), std::move(failure))) {}
Watchdog::~Watchdog() = default;
bool Watchdog::end_step() { return state_->end_step(); }
std::int64_t Watchdog::step() const { return state_->step(); }
void Watchdog::set_step(std::int64_t step) { state_->set_step(step); }

}  // namespace polyphase::distributed
