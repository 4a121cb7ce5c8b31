#include "training/split.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"

using namespace training;
using polyphase::Error;
using polyphase::testing::error_of;
using polyphase::testing::TemporaryDirectory;
using polyphase::testing::write_bytes;

namespace {

/// The split of a folder; fails if a file is omitted.
Split split_of(const std::string& folder, double fraction) {
  return split_folder(folder, fraction, [](const std::string& warning) { FAIL(warning); });
}

std::string split_error(const std::string& folder, double fraction = 0.1) {
  return error_of<Error>([&] { return split_of(folder, fraction).train.size(); });
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
  const Split a = split_of(one.path(), 0.25);
  const Split b = split_of(other.path(), 0.25);
  CHECK(a.heldout.size() == 10);
  CHECK(a.train.size() == 30);
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(std::filesystem::path(a.heldout[i]).filename() == std::filesystem::path(b.heldout[i]).filename());
    CHECK(std::find(a.train.begin(), a.train.end(), a.heldout[i]) == a.train.end());
  }
}

TEST_CASE("a linked folder is split like the folder itself, wherever the link leads") {
  const TemporaryDirectory one;
  const TemporaryDirectory linked;
  const TemporaryDirectory elsewhere;
  std::filesystem::create_directory(one.file("sub"));
  std::filesystem::create_directory_symlink(elsewhere.path(), linked.file("sub"));
  for (int i = 0; i < 40; ++i) {
    write_bytes(one.file("sub/clip" + std::to_string(i) + ".wav"), "");
    write_bytes(elsewhere.file("clip" + std::to_string(i) + ".wav"), "");
  }
  const Split a = split_of(one.path(), 0.25);
  const Split b = split_of(linked.path(), 0.25);
  REQUIRE(b.heldout.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) CHECK(b.heldout[i] == linked.path() + a.heldout[i].substr(one.path().size()));
}

TEST_CASE("broken and circular links are named and skipped") {
  const TemporaryDirectory folder;
  fill(folder, 4);
  std::filesystem::create_directory_symlink(".", folder.file("back"));
  std::filesystem::create_symlink("loop.wav", folder.file("loop.wav"));
  std::filesystem::create_symlink("nowhere", folder.file("gone.wav"));
  std::vector<std::string> warnings;
  const Split split = split_folder(folder.path(), 0.25, [&](const std::string& warning) { warnings.push_back(warning); });
  CHECK(split.train.size() == 3);
  CHECK(split.heldout.size() == 1);
  const std::string place = std::filesystem::canonical(folder.path()).string();
  CHECK(warnings ==
        std::vector<std::string>{"left out: " + folder.file("back") + ": a link to " + place + ", which is there already",
                                 "left out: " + folder.file("gone.wav") + ": No such file or directory",
                                 "left out: " + folder.file("loop.wav") + ": Too many levels of symbolic links"});
}

TEST_CASE("at least one file is held out, and never all") {
  const TemporaryDirectory folder;
  fill(folder, 2);
  for (const double fraction : {0.01, 0.99}) {
    const Split split = split_of(folder.path(), fraction);
    CHECK(split.train.size() == 1);
    CHECK(split.heldout.size() == 1);
  }
}

TEST_CASE("subfolders train and heldout decide where they are") {
  const Split split = split_of(TRAINING_DATA, 0.5);
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
