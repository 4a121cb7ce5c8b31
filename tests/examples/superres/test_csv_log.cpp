#include "csv_log.hpp"

#include <doctest/doctest.h>

#include "support/grouping_locale.hpp"
#include "support/temporary_directory.hpp"

using namespace superres;
using polyphase::testing::GroupingLocale;
using polyphase::testing::read_bytes;
using polyphase::testing::TemporaryDirectory;

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
