#include "training/csv_log.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "support/grouping_locale.hpp"
#include "support/temporary_directory.hpp"

using namespace training;
using polyphase::testing::GroupingLocale;
using polyphase::testing::read_bytes;
using polyphase::testing::TemporaryDirectory;
using polyphase::testing::write_bytes;

TEST_CASE("lines are the same under every locale, and a resumed run takes out what it does again") {
  const TemporaryDirectory folder;
  const GroupingLocale locale;
  CsvLog(folder.file("a.csv"), "step,x,y", 0).write(1999, {1.5, 20000});
  CHECK(read_bytes(folder.file("a.csv")) == "step,x,y\n1999,1.5,20000\n");
  CsvLog(folder.file("a.csv"), "step,x,y", 1999).write(2000, {-1e-9, 3});
  CHECK(read_bytes(folder.file("a.csv")) == "step,x,y\n1999,1.5,20000\n2000,-1e-09,3\n");
  CsvLog(folder.file("a.csv"), "step,x,y", 1998).write(1999, {0, 0});
  CHECK(read_bytes(folder.file("a.csv")) == "step,x,y\n1999,0,0\n");
}

TEST_CASE("lines that are not whole are dropped") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.csv");
  for (const char* torn : {"3,0.1,0.2", "3,0.1,", "30", "3,0.1\n", "\n", "3,0.1,0.2,0.3\n"}) {
    write_bytes(path, std::string("step,x,y\n1,2,3\n2,3,4\n") + torn);
    CsvLog(path, "step,x,y", 100).write(101, {5, 6});
    CHECK(read_bytes(path) == "step,x,y\n1,2,3\n2,3,4\n101,5,6\n");
  }
  for (const char* torn : {"", "ste", "step,x,y"}) {
    write_bytes(path, torn);
    CsvLog(path, "step,x,y", 100).write(101, {5, 6});
    CHECK(read_bytes(path) == "step,x,y\n101,5,6\n");
  }
}

TEST_CASE("a file that was removed or replaced comes back whole") {
  const TemporaryDirectory folder;
  const std::string path = folder.file("a.csv");
  CsvLog log(path, "step,x", 0);
  log.write(1, {1});
  log.restore();
  log.write(2, {2});
  std::filesystem::remove(path);
  log.write(3, {3});
  log.restore();
  log.write(4, {4});
  CHECK(read_bytes(path) == "step,x\n1,1\n2,2\n3,3\n4,4\n");
  std::filesystem::rename(path, folder.file("b.csv"));
  write_bytes(path, "another");
  log.restore();
  log.write(5, {5});
  CHECK(read_bytes(path) == "step,x\n1,1\n2,2\n3,3\n4,4\n5,5\n");
}
