#pragma once
// Starts the ranks of a job as processes of this machine: copies of the test program that call a function.

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "distributed/distributed_error.hpp"
#include "distributed/group.hpp"
#include "support/temporary_directory.hpp"

namespace polyphase::testing {

/// How a rank ended.
struct RankResult {
  int code = -1;       ///< exit code; 128 + n after signal n
  std::string text{};  ///< what it wrote to standard error
  double seconds = 0;  ///< after the start of the job
};

/// Thrown in a rank by RANK_CHECK.
struct RankCheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
#define RANK_CHECK(condition)                                                                                    \
  do {                                                                                                           \
    if (!(condition))                                                                                            \
      throw ::polyphase::testing::RankCheckFailed("failed: " #condition " in line " + std::to_string(__LINE__)); \
  } while (false)

/// A job of `world` processes that call `work(rank)` with POLYPHASE_RANK and so on set. An exception is written to standard
/// error (a DistributedError only if it says so) and makes the exit code 1.
class Job {
 public:
  Job(int world, std::function<void(int rank)> work, std::string address = {}, double timeout_s = 2) : began_(Clock::now()) {
    std::fflush(nullptr);
    if (address.empty()) address = folder_.file("meeting");
    for (int rank = 0; rank < world; ++rank) start(world, rank, work, address, timeout_s);
  }
  ~Job() {
    for (const Process& process : processes_)
      if (!process.has_ended) {
        ::kill(process.id, SIGKILL);
        ::waitpid(process.id, nullptr, 0);
      }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  void signal(int rank, int number) { ::kill(processes_[static_cast<std::size_t>(rank)].id, number); }

  /// Waits for all ranks but `except`; those that take longer than `patience_s` are killed and have the code 137.
  std::vector<RankResult> wait(int except = -1, double patience_s = 30) {
    std::vector<RankResult> results(processes_.size());
    for (std::size_t i = 0; i < processes_.size(); ++i)
      if (static_cast<int>(i) != except) results[i] = wait_for(processes_[i], patience_s);
    return results;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Process {
    pid_t id;
    std::string text_file;
    bool has_ended = false;
  };

  void start(int world, int rank, const std::function<void(int)>& work, const std::string& address, double timeout_s) {
    const std::string text_file = folder_.file("text" + std::to_string(rank));
    const pid_t id = ::fork();
    if (id != 0) return processes_.push_back({id, text_file});
    if (std::freopen(text_file.c_str(), "w", stderr) == nullptr) ::_exit(99);
    ::setenv("POLYPHASE_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("POLYPHASE_WORLD", std::to_string(world).c_str(), 1);
    ::setenv("POLYPHASE_ADDRESS", address.c_str(), 1);
    ::setenv("POLYPHASE_TIMEOUT", std::to_string(timeout_s).c_str(), 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // of these jobs, the ranks may be more than the GPUs; test_nccl.cpp has GPUs
    int code = 0;
    try {
      work(rank);
    } catch (const distributed::DistributedError& error) {
      if (error.should_print()) std::fprintf(stderr, "%s\n", error.what());
      code = 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      code = 1;
    }
    std::fflush(nullptr);
    ::_exit(code);
  }

  RankResult wait_for(Process& process, double patience_s) {
    const auto deadline = began_ + std::chrono::duration<double>(patience_s);
    int status = 0;
    while (::waitpid(process.id, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) ::kill(process.id, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process.has_ended = true;
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .text = read_bytes(process.text_file),
            .seconds = std::chrono::duration<double>(Clock::now() - began_).count()};
  }

  TemporaryDirectory folder_;
  Clock::time_point began_;
  std::vector<Process> processes_;
};

/// Runs a job to its end; the first text of a rank that failed, or nothing.
inline std::string run_ranks(int world, const std::function<void(distributed::Group group)>& work) {
  Job job(world, [&](int) { work(distributed::init()); });
  for (const RankResult& result : job.wait())
    if (result.code != 0) return result.text.empty() ? "exit code " + std::to_string(result.code) : result.text;
  return {};
}

}  // namespace polyphase::testing
