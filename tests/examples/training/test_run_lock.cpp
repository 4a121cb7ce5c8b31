#include "training/run_lock.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "support/unprivileged.hpp"
#include "tensor/error.hpp"

using namespace training;
using polyphase::Error;
using polyphase::testing::error_of;
using polyphase::testing::TemporaryDirectory;
using polyphase::testing::Unprivileged;

namespace fs = std::filesystem;

namespace {

void no_warning(const std::string& warning) { FAIL(warning); }

std::string error_of_lock(const RunFolder& run) {
  return error_of<Error>([&] { return RunLock(run, no_warning), 0; });
}

/// Runs `body` in a separate process and returns its exit code.
int exit_code_of(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

// From now on file locks fail in this process, as on a file system without locks.
bool forbid_locks() {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 3),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLK, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("one process has the lock; the next gets its number, and the lock once it has ended, killed or not") {
  const TemporaryDirectory folder;
  const RunFolder run{folder.path()};
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const RunLock lock(run, no_warning);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK(error_of_lock(run) == "train: " + run.path + " is in use by another training (process " + std::to_string(holder) +
                                  "): wait for its end or choose another --out");
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  CHECK(fs::exists(run.lock()));
  {
    const RunLock lock(run, no_warning);
    CHECK(exit_code_of([&] { return error_of_lock(run).find("is in use") != std::string::npos ? 7 : 0; }) == 7);
  }
  CHECK(folder.count() == 0);
  CHECK(error_of_lock(run) == "no error");
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("processes that come and go never hold the lock together") {
  const TemporaryDirectory folder;
  const RunFolder run{folder.path()};
  const auto work = [&] {
    for (int held = 0; held < 300;) {
      try {
        const RunLock lock(run, [](const std::string&) {});
        ++held;
        // Fails while another process is inside, because that process has made the folder.
        if (::mkdir(folder.file("inside").c_str(), 0777) != 0 || ::rmdir(folder.file("inside").c_str()) != 0) return 1;
      } catch (const Error&) {
      }
    }
    return 0;
  };
  const pid_t other = fork();
  if (other == 0) _exit(work());
  CHECK(work() == 0);
  int status = 0;
  REQUIRE(waitpid(other, &status, 0) == other);
  CHECK(status == 0);
}

TEST_CASE("where the file cannot be made it is said why") {
  const TemporaryDirectory folder;
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  const Unprivileged nobody;
  CHECK(error_of_lock({folder.path()}) == "train: " + folder.file("lock") + ": cannot be created: Permission denied");
}

TEST_CASE("a file system without locks is reported and used") {
  const TemporaryDirectory folder;
  const int code = exit_code_of([&] {
    if (!forbid_locks()) return 1;
    std::string warning;
    const RunLock lock({folder.path()}, [&](const std::string& text) { warning = text; });
    return warning == folder.file("lock") + ": cannot be locked (No locks available): see to it that no other training " +
                          "writes to this folder"
               ? 7
               : 2;
  });
  CHECK(code == 7);
}
