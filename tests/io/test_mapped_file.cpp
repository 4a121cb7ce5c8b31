#include "io/mapped_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "support/unprivileged.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string error_for(const std::string& path) {
  return error_of<FormatError>([&] { return MappedFile("read", path).size(); });
}

}  // namespace

TEST_CASE("the bytes of the file are there, and writing to them stays in memory") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  write_bytes(path, "hello");
  const MappedFile file("read", path);
  CHECK(std::string_view(file.data(), file.size()) == "hello");
  file.data()[0] = 'j';
  CHECK(std::string_view(file.data(), file.size()) == "jello");
  CHECK(read_bytes(path) == "hello");
}

TEST_CASE("the bytes stay when the file is replaced or removed") {
  const TemporaryDirectory directory;
  write_bytes(directory.file("a"), "old");
  const MappedFile file("read", directory.file("a"));
  write_bytes(directory.file("b"), "new");
  std::filesystem::rename(directory.file("b"), directory.file("a"));
  std::filesystem::remove(directory.file("a"));
  CHECK(std::string_view(file.data(), file.size()) == "old");
}

TEST_CASE("an empty file is an empty mapping") {
  const TemporaryDirectory directory;
  write_bytes(directory.file("a"), "");
  const MappedFile file("read", directory.file("a"));
  CHECK(file.size() == 0);
}

TEST_CASE("what is missing or no regular file is refused in words, and a pipe does not block") {
  const TemporaryDirectory directory;
  CHECK(error_for(directory.file("no")) == "read: " + directory.file("no") + ": cannot be opened: No such file or directory");
  CHECK(error_for(directory.path()) == "read: " + directory.path() + ": cannot be read: Is a directory");
  CHECK(error_for("/dev/zero") == "read: /dev/zero: cannot be read: not a regular file");
  REQUIRE(::mkfifo(directory.file("pipe").c_str(), 0600) == 0);
  CHECK(error_for(directory.file("pipe")) == "read: " + directory.file("pipe") + ": cannot be read: not a regular file");
}

TEST_CASE("a file without read permission is refused") {
  const Unprivileged user;
  const TemporaryDirectory directory;
  write_bytes(directory.file("a"), "secret");
  ::chmod(directory.file("a").c_str(), 0);
  CHECK(error_for(directory.file("a")) == "read: " + directory.file("a") + ": cannot be opened: Permission denied");
}
