#include "training/sound_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tensor/error.hpp"
#include "training/hash.hpp"

namespace training {
namespace {

namespace fs = std::filesystem;
using polyphase::concat;
using polyphase::Error;
using polyphase::require;

constexpr const char* kFolderText = "data";
constexpr const char* kFilesText = "data-files";
constexpr std::uint64_t kBlocks = 4;
constexpr std::string_view kHexDigits = "0123456789abcdef";

// Any path as one line of UTF-8, as a checkpoint's texts must be: bytes outside plain ASCII, and '%', become %XX.
std::string encoded(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '%') {
      text += c;
    } else {
      text += {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }
  return text;
}

template <class T>
bool read_number(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::string decoded(std::string_view text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] != '%') {
      path += text[i];
    } else if (text.size() - i > 2 && read_number(text.substr(i + 1, 2), byte, 16)) {
      path += static_cast<char>(byte);
      i += 2;
    } else {
      throw Error(concat("train: the checkpoint's record of the sound has a malformed path: ", text));
    }
  }
  return path;
}

// The hash of the readable content. For a large file it reads blocks evenly spread from the first byte to the last.
std::uint64_t content_hash(const std::string& path, std::uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  const std::uint64_t blocks = bytes > kMostHashed ? kBlocks : 1;
  std::string block(std::min(bytes, kMostHashed) / blocks, '\0');
  std::uint64_t hash = kHashStart;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t start = blocks == 1 ? 0 : (bytes - block.size()) * i / (blocks - 1);
    file.seekg(static_cast<std::streamoff>(start));
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash = fnv1a({block.data(), static_cast<std::size_t>(file.gcount())}, hash);
  }
  return file.is_open() ? hash : 0;
}

FileMark mark_of(const std::string& path, const fs::path& folder) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  FileMark mark{.name = fs::path(path).lexically_relative(folder).generic_string(), .bytes = error ? 0 : bytes};
  mark.hash = content_hash(path, mark.bytes);
  return mark;
}

// One mark for each folder, made of all marks below it; `marks` are sorted by name.
std::vector<FileMark> by_folder(const std::vector<FileMark>& marks) {
  std::map<std::string, FileMark> folders;
  for (const FileMark& mark : marks) {
    std::string parent = fs::path(mark.name).parent_path().generic_string();
    if (parent.empty()) parent = ".";
    FileMark& folder = folders.try_emplace(parent, FileMark{.name = parent, .hash = kHashStart}).first->second;
    folder.bytes += mark.bytes;
    folder.hash = fnv1a(concat(mark.name, '/', mark.bytes, '/', mark.hash), folder.hash);
  }
  std::vector<FileMark> merged;
  for (auto& [name, folder] : folders) merged.push_back(std::move(folder));
  return merged;
}

// "2 files are gone (a.wav, b.wav)", for one kind of difference; the first of a list has the noun.
void add_difference(std::string& text, const std::vector<std::string>& names, const char* one, const char* many) {
  constexpr std::size_t kShown = 3;
  if (names.empty()) return;
  const bool single = names.size() == 1;
  if (text.empty()) {
    text = concat(names.size(), single ? " file " : " files ");
  } else {
    text += concat(", ", names.size(), " ");
  }
  text += concat(single ? one : many, " (");
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  text += names.size() > kShown ? ", ...)" : ")";
}

}  // namespace

SoundRecord record_of(const std::string& folder, const Split& split, std::size_t most_marks) {
  SoundRecord record{.folder = fs::absolute(folder).lexically_normal().string(), .files = {}};
  for (const auto* paths : {&split.train, &split.heldout}) {
    for (const std::string& path : *paths) record.files.push_back(mark_of(path, folder));
  }
  std::sort(record.files.begin(), record.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  while (record.files.size() > most_marks) record.files = by_folder(record.files);
  return record;
}

std::map<std::string, std::string> to_texts(const SoundRecord& record) {
  std::string files;
  for (const FileMark& mark : record.files) files += concat(mark.hash, " ", mark.bytes, " ", encoded(mark.name), "\n");
  return {{kFolderText, encoded(record.folder)}, {kFilesText, files}};
}

std::optional<SoundRecord> sound_record_from(const std::map<std::string, std::string>& texts) {
  const auto folder = texts.find(kFolderText);
  const auto files = texts.find(kFilesText);
  if (folder == texts.end() || files == texts.end()) return std::nullopt;
  SoundRecord record{.folder = decoded(folder->second), .files = {}};
  for (std::string_view rest = files->second; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t first = std::min(line.find(' '), line.size());
    const std::size_t second = std::min(line.find(' ', first + 1), line.size());
    FileMark mark;
    require<Error>(second < line.size() && read_number(line.substr(0, first), mark.hash) &&
                       read_number(line.substr(first + 1, second - first - 1), mark.bytes),
                   "train: the checkpoint's record of the sound has a malformed line: ", line);
    mark.name = decoded(line.substr(second + 1));
    record.files.push_back(std::move(mark));
  }
  return record;
}

std::string difference(const SoundRecord& before, const SoundRecord& now) {
  std::map<std::string, FileMark> fresh;
  for (const FileMark& mark : now.files) fresh.emplace(mark.name, mark);
  std::vector<std::string> gone;
  std::vector<std::string> changed;
  for (const FileMark& mark : before.files) {
    const auto found = fresh.find(mark.name);
    if (found == fresh.end()) {
      gone.push_back(mark.name);
    } else {
      if (!(found->second == mark)) changed.push_back(mark.name);
      fresh.erase(found);
    }
  }
  std::vector<std::string> added;
  for (const auto& [name, mark] : fresh) added.push_back(name);
  std::string text;
  add_difference(text, gone, "is gone", "are gone");
  add_difference(text, added, "is new", "are new");
  add_difference(text, changed, "has changed", "have changed");
  return text;
}

}  // namespace training
