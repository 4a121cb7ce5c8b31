#pragma once
// How many threads CPU work uses. Settable at any time; every parallel region of cpu/ asks here.

#include <cstdint>
#include <functional>

namespace polyphase {

/// Threads used by CPU operations called from now on. Default: OMP_NUM_THREADS, else the cores this process may run on.
[[nodiscard]] int num_threads();
/// Throws Error unless count >= 1. Affects every thread of the process.
void set_num_threads(int count);

/// For a program, first in main: threads that wait for work sleep instead of spinning, which is as fast on idle cores and much
/// faster on busy ones. OpenMP reads OMP_WAIT_POLICY when it is loaded, before main, so this sets it to "passive" and starts
/// the program once more, in the same process and with the same arguments. Does nothing where OMP_WAIT_POLICY or GOMP_SPINCOUNT
/// is set already, or the program cannot be started again.
void wait_passively(char** argv);

namespace cpu {

/// Calls body(begin, end) over disjoint ranges that cover [0, count), each at least `grain` long (but the last), on at most
/// num_threads() threads. Ranges are handed to threads in order, statically. Exceptions thrown by body are rethrown here.
/// A nested call runs on the calling thread, and so does one in a process forked since threads were first used.
void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace cpu
}  // namespace polyphase
