#include "cpu/threads.hpp"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>

#include "tensor/error.hpp"

namespace polyphase {
namespace {

// OMP_NUM_THREADS may be a list with one number per nesting level; this uses the first.
int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr) {
    const int count = std::atoi(text);
    if (count >= 1) return count;
  }
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{default_threads()};
  return count;
}

// A forked child has none of its parent's threads, and GNU's OpenMP would wait for them forever.
std::atomic<bool> has_lost_threads = false;

void watch_forks() {
  [[maybe_unused]] static const int failed = pthread_atfork(nullptr, nullptr, [] { has_lost_threads = true; });
}

}  // namespace

int num_threads() { return thread_count().load(std::memory_order_relaxed); }

void set_num_threads(int count) {
  require<Error>(count >= 1, "set_num_threads: expected a count of at least 1, got ", count);
  thread_count().store(count, std::memory_order_relaxed);
}

void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  // Not /proc/self/exe itself: the process would be called "exe" from then on.
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || ::setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
  ::execv(program.c_str(), argv);
  // exec returned: the program could not be started again, and continues with threads that spin.
}

namespace cpu {

void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t ranges = std::min<std::int64_t>(num_threads(), std::max<std::int64_t>(1, count / grain));
  if (ranges <= 1 || omp_in_parallel() != 0 || has_lost_threads) return body(0, count);
  watch_forks();
  // Equal shares, in order; the first `longer` ranges have one more. With fewer ranges than count/grain each is at least
  // `grain` long.
  const std::int64_t share = count / ranges;
  const std::int64_t longer = count % ranges;
  std::exception_ptr failure;
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(ranges))
  for (std::int64_t r = 0; r < ranges; ++r) {
    const std::int64_t begin = r * share + std::min(r, longer);
    const std::int64_t end = begin + share + (r < longer ? 1 : 0);
    try {
      body(begin, end);
    } catch (...) {  // an exception must not leave an OpenMP region; any one of several is rethrown
#pragma omp critical(polyphase_parallel_for)
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cpu
}  // namespace polyphase
