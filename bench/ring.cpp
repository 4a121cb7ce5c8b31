// Times an all-reduce over the TCP ring of two processes of this machine against what two plain sockets move in both directions
// together.
//   ring [--megabytes M] [--repeat R] [--json FILE]
// Per all-reduce of M megabytes each of two ranks sends and receives M megabytes, and adds half as many. The plain sockets send
// and receive as much, by a thread each way or by one thread for both, whatever is faster. The three take turns; medians are
// compared. It exits with 1 if the ring reaches less than 60 % of the sockets' speed.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <polyphase/polyphase.hpp>
#include <string>
#include <thread>
#include <vector>

#include "distributed/group.hpp"
#include "distributed/network/ring_transfer.hpp"
#include "distributed/network/socket.hpp"
#include "program/program.hpp"

namespace {

namespace pp = polyphase;
namespace dist = polyphase::distributed;
using Clock = std::chrono::steady_clock;

constexpr double kWanted = 0.6;  // of the sockets' speed

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(60); }

/// Two connections between the ranks: one each way.
struct Sockets {
  dist::Socket out, in;
};

Sockets connect(const dist::Group& group, const std::string& folder) {
  const auto file = [&](int rank) { return folder + "/port" + std::to_string(rank); };
  const dist::Socket listener = dist::Socket::listen("127.0.0.1", 0);
  std::ofstream(file(group.rank()) + ".new") << listener.port();
  std::filesystem::rename(file(group.rank()) + ".new", file(group.rank()));
  dist::Group(group).barrier();
  int port = 0;
  std::ifstream(file(1 - group.rank())) >> port;
  Sockets sockets;
  sockets.out = dist::Socket::connect("127.0.0.1", port, soon());
  sockets.in = listener.accept(soon());
  return sockets;
}

void move_by_two_threads(const Sockets& sockets, const pp::Tensor& from, const pp::Tensor& to) {
  const auto bytes = static_cast<std::size_t>(from.numel()) * sizeof(float);
  std::thread sender([&] { sockets.out.send(from.raw(), bytes, soon()); });
  sockets.in.receive(to.raw(), bytes, soon());
  sender.join();
}

void move_by_one_thread(const Sockets& sockets, const pp::Tensor& from, const pp::Tensor& to) {
  const auto bytes = static_cast<std::size_t>(from.numel()) * sizeof(float);
  const dist::RingTransfer transfer{.sends = {{.data = static_cast<char*>(from.raw()), .bytes = bytes}},
                                    .receives = {{.data = static_cast<char*>(to.raw()), .bytes = bytes}},
                                    .ready = bytes};
  static const dist::Failure none;
  static std::vector<char> scratch;
  dist::run(transfer, sockets.out, sockets.in, none, scratch);
}

template <class Work>
double seconds_of(dist::Group& group, const Work& work) {
  group.barrier();
  const Clock::time_point begin = Clock::now();
  work();
  group.barrier();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Settings {
  int megabytes = 64;
  int repeat = 9;
  std::string json;
};

int report(const Settings& settings, double ring, double two_threads, double one_thread) {
  const double plain = std::min(two_threads, one_thread), share = plain / ring;
  const auto speed = [&](double seconds) { return settings.megabytes / 1024.0 / seconds; };
  std::printf("plain sockets, a thread each way %.2f GiB/s, one thread %.2f GiB/s; all-reduce %.2f GiB/s: %.0f %%\n",
              speed(two_threads), speed(one_thread), speed(ring), 100 * share);
  if (!settings.json.empty()) {
    const nlohmann::json record = {
        {"suite", "ring"},
        {"records",
         {{{"megabytes", settings.megabytes},
           {"us", ring * 1e6},
           {"peers", {{"sockets_two_threads", two_threads * 1e6}, {"sockets_one_thread", one_thread * 1e6}}}}}}};
    std::ofstream(settings.json) << record.dump(1) << '\n';
  }
  return share < kWanted ? 1 : 0;
}

int run_rank(const Settings& settings, const std::string& folder) {
  dist::Group group = dist::init({.device = pp::Device::cpu()});
  const Sockets sockets = connect(group, folder);
  const std::int64_t count = std::int64_t{settings.megabytes} << 18U;
  const pp::Tensor values = pp::Tensor::ones({count}), received = pp::Tensor::zeros({count});
  std::vector<double> ring, two_threads, one_thread;
  for (int i = -1; i < settings.repeat; ++i) {  // the first round is not counted
    const double a =
        seconds_of(group, [&] { group.communicator().all_reduce(values, dist::Combine::average, "bench").wait(); });
    const double b = seconds_of(group, [&] { move_by_two_threads(sockets, values, received); });
    const double c = seconds_of(group, [&] { move_by_one_thread(sockets, values, received); });
    if (i >= 0) ring.push_back(a), two_threads.push_back(b), one_thread.push_back(c);
  }
  if (values.to_vector<float>() != std::vector<float>(static_cast<std::size_t>(count), 1)) {
    std::fprintf(stderr, "ring: the average of ones is not one\n");
    return 1;
  }
  return group.is_first() ? report(settings, median(ring), median(two_threads), median(one_thread)) : 0;
}

int run_both(const Settings& settings) {
  std::string folder = (std::filesystem::temp_directory_path() / "polyphase-ring-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw pp::Error("ring: no temporary folder can be made");
  ::setenv("POLYPHASE_WORLD", "2", 1);
  ::setenv("POLYPHASE_ADDRESS", (folder + "/meeting").c_str(), 1);
  const pid_t other = ::fork();
  ::setenv("POLYPHASE_RANK", other == 0 ? "1" : "0", 1);
  const int code = run_rank(settings, folder);
  if (other == 0) std::_Exit(code);
  int status = 0;
  ::waitpid(other, &status, 0);
  std::filesystem::remove_all(folder);
  return code != 0 || status != 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return pp::program::run_main(
      argc, argv, "ring", "Times the TCP ring against plain sockets.",
      [](pp::program::Arguments& app, pp::program::Action& action) {
        static Settings settings;
        app.add_option("--megabytes", settings.megabytes, "of each all-reduce (default 64)").in_range(1, 4096);
        app.add_option("--repeat", settings.repeat, "rounds (default 9)").in_range(1, 1000);
        app.add_option("--json", settings.json, "writes the record there");
        action = [] { return run_both(settings); };
      });
}
