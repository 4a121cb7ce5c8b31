#include "io/atomic_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/temporary_directory.hpp"
#include "support/unprivileged.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file("test", path);
  file.write(text.data(), text.size());
  file.commit();
}

// During its lifetime no file can grow beyond `bytes`; to a program this is a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit{bytes, previous_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &previous_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit previous_{};
};

// Another process that has begun a file and waits for a command.
class Writer {
 public:
  explicit Writer(const std::string& path) {
    int ready[2];
    int go[2];
    REQUIRE(::pipe(ready) == 0);
    REQUIRE(::pipe(go) == 0);
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) ::_exit(write_when_told(path, ready[1], go[0]));
    ::close(ready[1]);
    ::close(go[0]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    go_ = go[1];
  }
  ~Writer() { end(SIGKILL); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void kill() { end(SIGKILL); }
  // Returns whether the file could be finished.
  bool finish() {
    CHECK(::write(go_, "", 1) == 1);
    return end(0) == 0;
  }

 private:
  static int write_when_told(const std::string& path, int ready, int go) {
    try {
      AtomicFile file("child", path);
      file.write("child", 5);
      char byte = 0;
      if (::write(ready, "", 1) != 1 || ::read(go, &byte, 1) != 1) return 1;
      file.commit();
      return 0;
    } catch (const Error&) {
      return 1;
    }
  }
  int end(int signal) {
    if (process_ < 0) return 0;
    if (signal != 0) ::kill(process_, signal);
    int status = 0;
    ::waitpid(process_, &status, 0);
    ::close(go_);
    process_ = -1;
    return status;
  }

  pid_t process_ = -1;
  int go_ = -1;
};

}  // namespace

TEST_CASE("a committed file has the bytes, and no other file remains") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  write_file(path, "first");
  CHECK(read_bytes(path) == "first");
  write_file(path, "second, longer");
  CHECK(read_bytes(path) == "second, longer");
  write_file(path, "");
  CHECK(read_bytes(path).empty());
  CHECK(directory.count() == 1);
}

TEST_CASE("without commit the old file stays and the temporary goes") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  write_bytes(path, "old");
  {
    AtomicFile file("test", path);
    file.write("new", 3);
    CHECK(directory.count() == 2);
    CHECK(read_bytes(path) == "old");
  }
  CHECK(read_bytes(path) == "old");
  CHECK(directory.count() == 1);
}

TEST_CASE("what a killed process left goes when the next file of that name is begun") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  Writer(path).kill();
  CHECK(directory.count() == 1);
  write_file(directory.file("b"), "another name");
  CHECK(directory.count() == 2);
  std::filesystem::create_symlink("a", directory.file("link"));
  write_file(directory.file("link"), "new");
  CHECK(read_bytes(path) == "new");
  CHECK(directory.count() == 3);
  // A running process with the number in the file's name proves nothing: numbers are reused, and machines have the same ones.
  write_bytes(directory.file(concat("a.tmp-", ::getpid(), "-0")), "left over");
  write_bytes(directory.file("a.tmp-1-12"), "left over");
  write_file(path, "newer");
  CHECK(directory.count() == 3);
}

TEST_CASE("another process's file is not touched while that process lives") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  Writer writer(path);
  write_file(path, "new");
  CHECK(directory.count() == 2);
  CHECK(read_bytes(path) == "new");
  CHECK(writer.finish());
  CHECK(read_bytes(path) == "child");
  CHECK(directory.count() == 1);
}

TEST_CASE("files whose names only look like a temporary's stay") {
  const TemporaryDirectory directory;
  for (const char* name :
       {"a.tmp-1", "a.tmp-1-", "a.tmp--1", "a.tmp-1-2x", "a.tmp-x-2", "a.tmp-1-2-3", "aa.tmp-1-2", "b.tmp-1-2"})
    write_bytes(directory.file(name), "x");
  std::filesystem::create_directory(directory.file("a.tmp-3-4"));
  std::filesystem::create_symlink("b.tmp-1-2", directory.file("a.tmp-5-6"));
  REQUIRE(::mkfifo(directory.file("a.tmp-7-8").c_str(), 0600) == 0);
  const int reader =
      ::open(directory.file("a.tmp-7-8").c_str(), O_RDONLY | O_NONBLOCK);  // else it could not be opened for writing
  write_file(directory.file("a"), "new");
  ::close(reader);
  CHECK(directory.count() == 12);
}

TEST_CASE("many processes that write one name at the same time all succeed") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  std::atomic<int> failures{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        try {
          write_file(path, "whole");
        } catch (const Error&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(failures == 0);
  CHECK(read_bytes(path) == "whole");
  CHECK(directory.count() == 1);
}

TEST_CASE("where the disk ends the old file stays, the temporary goes and the error says how far it came") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  write_bytes(path, "old");
  std::string error;
  {
    const FileSizeLimit limit(4096);
    const std::string text(10000, 'x');
    error = error_of<FormatError>([&] {
      write_file(path, text);
      return 0;
    });
  }
  CHECK(error == "test: " + path + ": writing failed after 4096 bytes: File too large");
  CHECK(read_bytes(path) == "old");
  CHECK(directory.count() == 1);
}

TEST_CASE("the mode of the old file is kept, and a new one follows the umask") {
  const TemporaryDirectory directory;
  const auto mode_of = [](const std::string& path) {
    struct stat info {};
    ::stat(path.c_str(), &info);
    return info.st_mode & 0777U;
  };
  const mode_t umask_before = ::umask(027);
  write_file(directory.file("new"), "x");
  ::umask(umask_before);
  CHECK(mode_of(directory.file("new")) == 0640);
  ::chmod(directory.file("new").c_str(), 0604);
  write_file(directory.file("new"), "y");
  CHECK(mode_of(directory.file("new")) == 0604);
}

TEST_CASE("a symbolic link is followed, not replaced") {
  const TemporaryDirectory directory;
  write_bytes(directory.file("target"), "old");
  std::filesystem::create_symlink(directory.file("target"), directory.file("link"));
  write_file(directory.file("link"), "new");
  CHECK(std::filesystem::is_symlink(directory.file("link")));
  CHECK(read_bytes(directory.file("target")) == "new");
}

TEST_CASE("a link to a file that is not there yet makes that file") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("sub"));
  std::filesystem::create_symlink("sub/target", directory.file("second"));
  std::filesystem::create_symlink("second", directory.file("first"));
  write_file(directory.file("first"), "new");
  CHECK(std::filesystem::is_symlink(directory.file("first")));
  CHECK(std::filesystem::is_symlink(directory.file("second")));
  CHECK(read_bytes(directory.file("sub/target")) == "new");
}

TEST_CASE("a name may be as long as the file system takes") {
  const TemporaryDirectory directory;
  const std::string path = directory.file(std::string(255, 'x'));
  write_file(path, "new");
  CHECK(read_bytes(path) == "new");
  CHECK(directory.count() == 1);
}

TEST_CASE("an unreadable file stays unreadable") {
  if (::geteuid() != 0) SKIP_TEST("only root may write a file of mode 000");
  const TemporaryDirectory directory;
  write_file(directory.file("a"), "old");
  ::chmod(directory.file("a").c_str(), 0);
  write_file(directory.file("a"), "new");
  struct stat info {};
  ::stat(directory.file("a").c_str(), &info);
  CHECK((info.st_mode & 07777U) == 0);
}

TEST_CASE("what cannot be written is refused in words before anything is touched") {
  const TemporaryDirectory directory;
  const auto error = [](const std::string& path) { return error_of<FormatError>([&] { return AtomicFile("save", path), 0; }); };
  CHECK(error(directory.file("no/such/place")) ==
        "save: " + directory.file("no/such/place") + ": cannot be created: No such file or directory");
  CHECK(error(directory.path()) == "save: " + directory.path() + ": cannot be written: Is a directory");
  CHECK(error("/dev/full") == "save: /dev/full: cannot be written: Operation not supported");
  CHECK(error("") == "save: : cannot be created: No such file or directory");
  CHECK(directory.count() == 0);
  std::filesystem::create_symlink("loop", directory.file("loop"));
  CHECK(error(directory.file("loop")) ==
        "save: " + directory.file("loop") + ": cannot be written: Too many levels of symbolic links");
  CHECK(directory.count() == 1);
}

TEST_CASE("a file or directory without write permission is refused") {
  const Unprivileged user;
  const TemporaryDirectory directory;
  const auto error = [](const std::string& path) { return error_of<FormatError>([&] { return AtomicFile("save", path), 0; }); };
  write_bytes(directory.file("a"), "old");
  ::chmod(directory.file("a").c_str(), 0444);
  CHECK(error(directory.file("a")) == "save: " + directory.file("a") + ": cannot be written: Permission denied");
  ::chmod(directory.path().c_str(), 0555);
  CHECK(error(directory.file("b")) == "save: " + directory.file("b") + ": cannot be created: Permission denied");
  ::chmod(directory.path().c_str(), 0755);
}

TEST_CASE("a reader sees the complete old file or the complete new one") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  const std::string texts[] = {std::string(200000, 'a'), std::string(100000, 'b')};
  write_file(path, texts[0]);
  std::atomic<bool> done{false};
  std::atomic<int> torn{0};
  std::thread reader([&] {
    while (!done) {
      const std::string seen = read_bytes(path);
      if (seen != texts[0] && seen != texts[1]) ++torn;
    }
  });
  for (int i = 0; i < 40; ++i) write_file(path, texts[i % 2]);
  done = true;
  reader.join();
  CHECK(torn == 0);
}

TEST_CASE("bytes that were written can be written over, and no others") {
  const TemporaryDirectory directory;
  AtomicFile file("save", directory.file("a"));
  file.write("hello there", 11);
  file.rewrite(6, "world", 5);
  file.rewrite(0, "H", 1);
  CHECK(error_of<FormatError>([&] { return file.rewrite(7, "world", 5), 0; }).find("from byte 7") != std::string::npos);
  file.write("!", 1);
  file.commit();
  CHECK(read_bytes(directory.file("a")) == "Hello world!");
}
