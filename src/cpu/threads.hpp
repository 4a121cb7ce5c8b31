#pragma once
// The number of threads for CPU work. It can be set at any time; every parallel region of cpu/ uses it.

#include <cstdint>
#include <functional>

namespace polyphase {

/// The number of threads of CPU operations called from now on. Default: OMP_NUM_THREADS, else the cores this process may run
/// on.
[[nodiscard]] int num_threads();
/// Throws Error unless count >= 1. Affects every thread of the process.
void set_num_threads(int count);

/// For programs, to be called first in main: threads that wait for work sleep instead of spinning. That is as fast on idle
/// cores and much faster on busy ones. OpenMP reads OMP_WAIT_POLICY when it is loaded, before main, so this function sets it to
/// "passive" and starts the program again, in the same process and with the same arguments. Does nothing if OMP_WAIT_POLICY
/// or GOMP_SPINCOUNT is already set, or if the program cannot be started again.
void wait_passively(char** argv);

namespace cpu {

/// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long (except the last), on at most
/// num_threads() threads. Ranges are assigned to threads in order, statically. Exceptions thrown by body are rethrown here. A
/// nested call runs on the calling thread, and so does a call in a process that was forked after threads were first used.
void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace cpu
}  // namespace polyphase
