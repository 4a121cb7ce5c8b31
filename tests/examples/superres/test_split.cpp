#include "split.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"

using namespace superres;
using polyphase::Error;
using polyphase::testing::error_of;
using polyphase::testing::TemporaryDirectory;
using polyphase::testing::write_bytes;

namespace {

std::string split_error(const std::string& folder, double fraction = 0.1) {
  return error_of<Error>([&] { return split_folder(folder, fraction).train.size(); });
}

void fill(const TemporaryDirectory& folder, int count) {
  for (int i = 0; i < count; ++i) write_bytes(folder.file("clip" + std::to_string(i) + ".wav"), "");
}

}  // namespace

TEST_CASE("the split depends on names alone, covers all files and holds out the share asked for") {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  fill(one, 40);
  fill(other, 40);
  write_bytes(one.file("notes.txt"), "");
  const Split a = split_folder(one.path(), 0.25);
  const Split b = split_folder(other.path(), 0.25);
  CHECK(a.heldout.size() == 10);
  CHECK(a.train.size() == 30);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(std::filesystem::path(a.heldout[i]).filename() == std::filesystem::path(b.heldout[i]).filename());
    CHECK(std::find(a.train.begin(), a.train.end(), a.heldout[i]) == a.train.end());
  }
}

TEST_CASE("at least one file is held out, and never all") {
  const TemporaryDirectory folder;
  fill(folder, 2);
  for (const double fraction : {0.01, 0.99}) {
    const Split split = split_folder(folder.path(), fraction);
    CHECK(split.train.size() == 1);
    CHECK(split.heldout.size() == 1);
  }
}

TEST_CASE("subfolders train and heldout decide where they are") {
  const Split split = split_folder(SUPERRES_DATA, 0.5);
  CHECK(split.train.size() == 15);
  CHECK(split.heldout.size() == 4);
}

TEST_CASE("folders without enough sound are refused with the numbers") {
  const TemporaryDirectory folder;
  const std::string missing = folder.file("nowhere");
  CHECK(split_error(missing).find(missing + ": expected a folder of WAV") == 0);
  CHECK(split_error(folder.path()).find("files (one to learn from, one to hold out), found 0") != std::string::npos);
  fill(folder, 1);
  CHECK(split_error(folder.path()).find("found 1") != std::string::npos);
  CHECK(split_error(folder.path(), 1.5) == "expected a held-out fraction between 0 and 1, got 1.5");
  std::filesystem::create_directory(folder.file("train"));
  std::filesystem::create_directory(folder.file("heldout"));
  CHECK(split_error(folder.path()).find("files in both train and heldout, found 0 and 0") != std::string::npos);
}
