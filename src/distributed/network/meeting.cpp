#include "distributed/network/meeting.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <thread>

#include "distributed/distributed_error.hpp"
#include "distributed/network/meeting_mpi.hpp"

namespace polyphase::distributed {
namespace {

using std::chrono::milliseconds;

constexpr std::int64_t kMagic = 0x31'74'73'69'64'50'50;  // "PPdist1"
constexpr milliseconds kPause{20};                       // between two attempts to connect
constexpr milliseconds kAnswer{2000};                    // within which the other end of a new connection says who it is

std::string quoted(const std::string& text) { return '"' + text + '"'; }

// Host and ports of rank 0, and the job that it must be of.
struct Target {
  std::vector<std::string> hosts{};
  std::vector<int> ports{};
  std::string job{};
};

std::pair<std::string, int> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  int port = 0;
  bool is_good = colon != std::string::npos && colon > 0;
  if (is_good) {
    const char* end = address.data() + address.size();
    const auto result = std::from_chars(address.data() + colon + 1, end, port);
    is_good = result.ec == std::errc{} && result.ptr == end && port >= 1 && port <= 65535;
  }
  require<DistributedError>(is_good, "distributed::init: expected POLYPHASE_ADDRESS as HOST:PORT or the path of a file, got ",
                            quoted(address));
  return {address.substr(0, colon), port};
}

// What rank 0 publishes where its port is not known in advance: "HOST PORT JOB", the job a random number.
std::string published(const Socket& listener, const std::string& job) {
  return concat(host_name(), " ", listener.port(), " ", job);
}

Target read_published(const std::string& text) {
  std::istringstream stream(text);
  std::string host, job;
  int port = 0;
  if (!(stream >> host >> port >> job)) return {};
  return {.hosts = {host, "127.0.0.1"}, .ports = {port}, .job = job};
}

std::string random_job() {
  std::random_device random;
  return concat(random(), "-", random(), "-", random());
}

void write_published(const std::string& path, const std::string& text) {
  const std::string temporary = concat(path, ".tmp-", text.substr(text.rfind(' ') + 1));
  std::ofstream file(temporary);
  file << text << '\n';
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path, error);
  require<DistributedError>(file && !error, "distributed::init: the file ", quoted(path),
                            " of POLYPHASE_ADDRESS cannot be written", error ? ": " + error.message() : "");
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_file(const Place& place) { return place.address.find('/') != std::string::npos; }

struct Hello {
  int rank, world, ring_port;
  std::string host, settings;
};

void send_hello(const Socket& socket, const Hello& hello, Clock::time_point deadline) {
  Message().put(hello.rank).put(hello.world).put(hello.ring_port).put(hello.host).put(hello.settings).send(socket, deadline);
}

Hello receive_hello(const Socket& socket, Clock::time_point deadline) {
  Message message = Message::receive(socket, deadline, 1 << 16);
  Hello hello{};
  hello.rank = static_cast<int>(message.number());
  hello.world = static_cast<int>(message.number());
  hello.ring_port = static_cast<int>(message.number());
  hello.host = message.text();
  hello.settings = message.text();
  return hello;
}

// Both ends first say which job they are of.
bool is_of_job(const Socket& socket, const std::string& job) {
  const Clock::time_point deadline = Clock::now() + kAnswer;
  const std::int64_t mine = kMagic ^ static_cast<std::int64_t>(hash_of(job));
  std::int64_t theirs = 0;
  socket.send(&mine, sizeof mine, deadline);
  socket.receive(&theirs, sizeof theirs, deadline);
  return theirs == mine;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) text += concat(i > 0 ? ", " : "", ranks[i]);
  return ranks.size() > 8 ? concat(text, ", ... (", ranks.size(), " ranks)") : text;
}

// Rank 0: waits for all others.
class Host {
 public:
  Host(const Place& place, Hello own, Clock::time_point deadline, milliseconds timeout)
      : place_(place), deadline_(deadline), timeout_(timeout), hellos_(static_cast<std::size_t>(place.world)) {
    result_.controls.resize(hellos_.size());
    hellos_[0] = std::move(own);
    listen();
  }

  Connections meet() {
    while (!missing().empty()) accept_one();
    if (is_file(place_)) std::filesystem::remove(place_.address);
    std::vector<std::string> addresses{""};
    for (std::size_t r = 1; r < hellos_.size(); ++r) addresses.push_back(result_.controls[r].peer());
    for (std::size_t r = 1; r < hellos_.size(); ++r) welcome(r, addresses);
    for (const Hello& hello : hellos_) result_.hosts.push_back(hello.host);
    return std::move(result_);
  }

  [[nodiscard]] int next_port() const { return hellos_[1].ring_port; }
  [[nodiscard]] const std::string& job() const { return job_; }

 private:
  void listen() {
    if (place_.address.empty() || is_file(place_)) {
      job_ = random_job();
      listener_ = Socket::listen("::", 0);
      const std::string text = published(listener_, job_);
      if (is_file(place_)) return write_published(place_.address, text);
      (void)broadcast_by_mpi(text, place_.rank, place_.world);
      return;
    }
    job_ = place_.job;
    const auto [host, port] = split_address(place_.address);
    std::string reason;
    for (const int candidate : candidate_ports(port, place_.derive_port, job_)) {
      try {
        listener_ = Socket::listen(host, candidate);
        return;
      } catch (const DistributedError& error) {
        reason = concat("port ", candidate, ": ", error.what());
      }
    }
    throw DistributedError(concat("distributed::init: rank 0 on ", hellos_[0].host, " cannot wait for the others at ",
                                  place_.address, ": ", reason));
  }

  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t r = 1; r < hellos_.size(); ++r)
      if (!result_.controls[r]) ranks.push_back(static_cast<int>(r));
    return ranks;
  }

  void accept_one() {
    Socket socket;
    try {
      socket = listener_.accept(deadline_);
    } catch (const DistributedError&) {
      reject(concat("rank ", list_of(missing()), " of ", place_.world, " did not come to rank 0 on ", hellos_[0].host,
                    " within ", static_cast<double>(timeout_.count()) / 1000, " s"));
    }
    Hello hello;
    try {
      if (!is_of_job(socket, job_)) return;
      hello = receive_hello(socket, Clock::now() + kAnswer);
    } catch (const DistributedError&) {
      return;  // a stranger
    }
    check(hello, socket);
    const auto rank = static_cast<std::size_t>(hello.rank);
    hellos_[rank] = std::move(hello);
    result_.controls[rank] = std::move(socket);
  }

  void check(const Hello& hello, const Socket& socket) {
    const auto name = [](const Hello& who) { return concat("rank ", who.rank, " on ", who.host); };
    std::string wrong;
    if (hello.world != place_.world) {
      wrong = concat(name(hello), " expects ", hello.world, " ranks, rank 0 on ", hellos_[0].host, " ", place_.world);
    } else if (hello.rank < 1 || hello.rank >= place_.world) {
      wrong = concat("a process on ", hello.host, " is rank ", hello.rank, " of ", place_.world, " too");
    } else if (result_.controls[static_cast<std::size_t>(hello.rank)]) {
      wrong = concat("two processes are rank ", hello.rank, ", on ", hello.host, " and on ",
                     hellos_[static_cast<std::size_t>(hello.rank)].host);
    } else if (hello.settings != hellos_[0].settings) {
      wrong = concat(name(hello), " has ", hello.settings, ", rank 0 on ", hellos_[0].host, " has ", hellos_[0].settings);
    }
    if (wrong.empty()) return;
    tell(socket, wrong);
    reject(wrong);
  }

  static void tell(const Socket& socket, const std::string& wrong) {
    try {
      Message().put(0).put(wrong).send(socket, Clock::now() + kAnswer);
    } catch (const DistributedError&) {
      // It has gone.
    }
  }

  [[noreturn]] void reject(const std::string& wrong) {
    for (const Socket& socket : result_.controls)
      if (socket) tell(socket, wrong);
    throw DistributedError("distributed::init: " + wrong);
  }

  void welcome(std::size_t rank, const std::vector<std::string>& addresses) {
    const std::size_t next = (rank + 1) % hellos_.size();
    Message message;
    message.put(1).put(addresses[next]).put(hellos_[next].ring_port);
    for (const Hello& hello : hellos_) message.put(hello.host);
    message.send(result_.controls[rank], deadline_);
  }

  const Place& place_;
  Clock::time_point deadline_;
  milliseconds timeout_;
  std::vector<Hello> hellos_;
  std::string job_;
  Socket listener_;
  Connections result_;
};

// The other ranks.
class Guest {
 public:
  Guest(const Place& place, Clock::time_point deadline, milliseconds timeout)
      : place_(place), deadline_(deadline), timeout_(timeout) {}

  Socket connect() {
    if (place_.address.empty()) target_ = read_published(broadcast_by_mpi("", place_.rank, place_.world));
    std::string reason = "nothing answers";
    while (Clock::now() < deadline_) {
      find_target();
      for (const std::string& host : target_.hosts)
        for (const int port : target_.ports)
          if (Socket socket = try_connect(host, port, reason)) return socket;
      std::this_thread::sleep_for(kPause);
    }
    throw DistributedError(concat("distributed::init: rank ", place_.rank, " on ", host_name(), " did not find rank 0 at ",
                                  place_.address.empty() ? target_.hosts.front() : place_.address, " within ",
                                  static_cast<double>(timeout_.count()) / 1000, " s: ", reason));
  }

  [[nodiscard]] const std::string& job() const { return target_.job; }
  /// The address at which rank 0 was found.
  [[nodiscard]] const std::string& host() const { return host_; }

 private:
  void find_target() {
    if (is_file(place_)) {
      target_ = read_published(read_file(place_.address));  // again and again: a killed job may have left the file
    } else if (!place_.address.empty()) {
      const auto [host, port] = split_address(place_.address);
      target_ = {.hosts = {host}, .ports = candidate_ports(port, place_.derive_port, place_.job), .job = place_.job};
    }
  }

  Socket try_connect(const std::string& host, int port, std::string& reason) {
    try {
      Socket socket = Socket::connect(host, port, std::min(deadline_, Clock::now() + kAnswer));
      if (is_of_job(socket, target_.job)) {
        host_ = host;
        return socket;
      }
      reason = concat("at ", host, ":", port, " another job answers");
    } catch (const DistributedError& error) {
      if (place_.derive_port) return {};  // one of several ports
      reason = concat(host, ":", port, ": ", error.what());
    }
    return {};
  }

  const Place& place_;
  Clock::time_point deadline_;
  milliseconds timeout_;
  Target target_;
  std::string host_;
};

// Connects to the next rank and accepts the one before.
void join_ring(Connections& result, const Socket& ring, const std::string& host, int port, const std::string& job,
               Clock::time_point deadline) {
  result.next = Socket::connect(host, port, deadline);
  const std::int64_t mine = kMagic ^ static_cast<std::int64_t>(hash_of(job));
  result.next.send(&mine, sizeof mine, deadline);
  while (!result.previous) {
    Socket socket = ring.accept(deadline);
    try {
      std::int64_t theirs = 0;
      socket.receive(&theirs, sizeof theirs, std::min(deadline, Clock::now() + kAnswer));
      if (theirs == mine) result.previous = std::move(socket);
    } catch (const DistributedError&) {
      // A stranger.
    }
  }
}

Connections meet_as_first(const Place& place, const Socket& ring, Hello own, Clock::time_point deadline, milliseconds timeout) {
  Host host(place, std::move(own), deadline, timeout);
  Connections result = host.meet();
  join_ring(result, ring, result.controls[1].peer(), host.next_port(), host.job(), deadline);
  return result;
}

Connections meet_as_other(const Place& place, const Socket& ring, const Hello& own, Clock::time_point deadline,
                          milliseconds timeout) {
  Guest guest(place, deadline, timeout);
  Connections result;
  result.controls.push_back(guest.connect());
  send_hello(result.controls[0], own, deadline);
  Message answer = Message::receive(result.controls[0], deadline + kAnswer);
  if (answer.number() == 0) throw DistributedError("distributed::init: " + answer.text(), false);
  std::string next = answer.text();
  const int port = static_cast<int>(answer.number());
  for (int r = 0; r < place.world; ++r) result.hosts.push_back(answer.text());
  // Rank 0 itself, and ranks that it sees at its own loopback, are where rank 0 is.
  if (next.empty() || next == "::1" || next.starts_with("127.")) next = guest.host();
  join_ring(result, ring, next, port, guest.job(), deadline);
  return result;
}

}  // namespace

std::vector<int> candidate_ports(int port, bool derive_port, const std::string& job) {
  if (!derive_port) return {port};
  constexpr int kCandidates = 8, kSpread = 1000, kLast = 65535;
  const int first = port + 1 + static_cast<int>(hash_of(job) % kSpread);
  std::vector<int> ports;
  for (int i = 0; i < kCandidates; ++i) {
    const int candidate = first + i;
    ports.push_back(candidate <= kLast ? candidate : candidate - kLast + port / 2);
  }
  return ports;
}

Connections meet(const Place& place, const std::string& settings, milliseconds timeout) try {
  const Clock::time_point deadline = Clock::now() + timeout;
  const Socket ring = Socket::listen("::", 0);
  Hello own{.rank = place.rank, .world = place.world, .ring_port = ring.port(), .host = host_name(), .settings = settings};
  return place.rank == 0 ? meet_as_first(place, ring, std::move(own), deadline, timeout)
                         : meet_as_other(place, ring, own, deadline, timeout);
} catch (const DistributedError& error) {
  const std::string what = error.what();
  if (what.starts_with("distributed::init")) throw;
  throw DistributedError(
      concat("distributed::init: rank ", place.rank, " on ", host_name(), " lost another rank while they met: ", what));
}

}  // namespace polyphase::distributed
