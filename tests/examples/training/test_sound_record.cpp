#include "training/sound_record.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "tensor/error.hpp"

using namespace training;
using polyphase::Error;
using polyphase::testing::error_of;
using polyphase::testing::read_bytes;
using polyphase::testing::TemporaryDirectory;
using polyphase::testing::write_bytes;

namespace fs = std::filesystem;

namespace {

SoundRecord record(const std::string& folder, std::size_t most_marks = kMostMarks) {
  return record_of(folder, split_folder(folder, 0.5, [](const std::string& warning) { FAIL(warning); }), most_marks);
}

void fill(const std::string& folder) {
  fs::create_directories(folder + "/sub");
  write_bytes(folder + "/a.wav", "one");
  write_bytes(folder + "/sub/b.wav", "two");
  write_bytes(folder + "/sub/c.wav", "three");
}

}  // namespace

TEST_CASE("files are distinguished by name, size and content, in any folder") {
  const TemporaryDirectory one;
  const TemporaryDirectory other;
  fill(one.path());
  fill(other.path());
  const SoundRecord before = record(one.path());
  REQUIRE(before.files.size() == 3);
  CHECK(before.folder == one.path());
  CHECK(before.files[1].name == "sub/b.wav");
  CHECK(before.files[1].bytes == 3);
  CHECK(difference(before, record(other.path() + "/.")).empty());

  write_bytes(other.file("a.wav"), "ONE");
  CHECK(difference(before, record(other.path())) == "1 file has changed (a.wav)");
  write_bytes(other.file("a.wav"), "one and more");
  CHECK(difference(before, record(other.path())) == "1 file has changed (a.wav)");
  fs::rename(other.file("sub/b.wav"), other.file("sub/d.wav"));
  write_bytes(other.file("sub/e.wav"), "new");
  CHECK(difference(before, record(other.path())) ==
        "1 file is gone (sub/b.wav), 2 are new (sub/d.wav, sub/e.wav), 1 has changed (a.wav)");
  for (int i = 0; i < 4; ++i) write_bytes(one.file("n" + std::to_string(i) + ".wav"), "");
  CHECK(difference(before, record(one.path())) == "4 files are new (n0.wav, n1.wav, n2.wav, ...)");
}

TEST_CASE("of a large file the first byte, the last, and blocks between them count") {
  const TemporaryDirectory folder;
  fill(folder.path());
  std::string content(3 * kMostHashed + 5, 'x');
  write_bytes(folder.file("large.wav"), content);
  const SoundRecord before = record(folder.path());
  const std::size_t block = kMostHashed / 4;
  const std::size_t stride = (content.size() - block) / 3;
  for (const std::size_t place : {std::size_t{0}, block - 1, stride + 1, 2 * stride + 1, content.size() - 1}) {
    content[place] = 'y';
    write_bytes(folder.file("large.wav"), content);
    CHECK(difference(before, record(folder.path())) == "1 file has changed (large.wav)");
    content[place] = 'x';
  }
  content[block] = 'y';  // between the blocks
  write_bytes(folder.file("large.wav"), content);
  CHECK(difference(before, record(folder.path())).empty());
}

TEST_CASE("of many files the folders have marks") {
  const TemporaryDirectory folder;
  fill(folder.path());
  const SoundRecord before = record(folder.path(), 2);
  REQUIRE(before.files.size() == 2);
  CHECK(before.files[0].name == ".");
  CHECK(before.files[1].bytes == 8);
  CHECK(record(folder.path(), 1).files.size() == 1);
  write_bytes(folder.file("sub/c.wav"), "other");
  CHECK(difference(before, record(folder.path(), 2)) == "1 file has changed (sub)");
}

TEST_CASE("a record survives a checkpoint's texts, for any bytes in its names") {
  const TemporaryDirectory parent;
  const std::string folder = parent.file("f\xff %41\n");
  fill(folder);
  write_bytes(folder + "/\xe4 1\n2%.wav", "latin");
  const SoundRecord before = record(folder);
  const auto texts = to_texts(before);
  for (const auto& [name, text] : texts) {
    for (const char c : text) CHECK((c == '\n' || (c >= 0x20 && c < 0x7f)));
  }
  const std::optional<SoundRecord> after = sound_record_from(texts);
  REQUIRE(after);
  CHECK(after->folder == folder);
  CHECK(after->files == before.files);
  CHECK_FALSE(sound_record_from({{"steps", "5"}}));
}

TEST_CASE("a malformed record is refused") {
  for (const char* files : {"x", "1 2", "1 -2 a.wav\n", "18446744073709551616 2 a.wav\n", "1 2x a.wav"}) {
    CHECK(error_of<Error>([&] {
            return sound_record_from({{"data", "d"}, {"data-files", files}}).has_value();
          }).find("train: the checkpoint's record of the sound has a malformed line: ") == 0);
  }
  for (const char* path : {"%", "%4", "%zz", "a%"}) {
    CHECK(error_of<Error>([&] {
            return sound_record_from({{"data", path}, {"data-files", ""}}).has_value();
          }) == std::string("train: the checkpoint's record of the sound has a malformed path: ") + path);
  }
}
