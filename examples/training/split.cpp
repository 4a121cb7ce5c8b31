#include "training/split.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "tensor/error.hpp"
#include "training/hash.hpp"
#include "training/shared.hpp"

namespace training {
namespace {

namespace fs = std::filesystem;
using polyphase::Error;
using polyphase::require;

std::string kinds() { return reads_flac() ? "WAV or FLAC" : "WAV"; }

// FNV-1a, then a mix that spreads names which differ in one digit (splitmix64's finaliser).
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = fnv1a(text);
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Walks through a folder and its subfolders, links included. What cannot be read is reported and dropped.
class Search {
 public:
  explicit Search(const Warn& warn) : warn_(warn) {}

  void visit(const fs::path& folder) {
    std::error_code error;
    const fs::path place = fs::canonical(folder, error);
    if (error) return leave_out(folder, error.message());
    if (!visited_.insert(place).second) return leave_out(folder, "a link to " + place.string() + ", which is there already");
    std::vector<fs::path> entries;
    for (fs::directory_iterator next(folder, error), end; !error && next != end; next.increment(error))
      entries.push_back(next->path());
    if (error) leave_out(folder, error.message());
    std::sort(entries.begin(), entries.end());  // so that of two links to a folder the same is followed everywhere
    for (const fs::path& entry : entries) {
      const fs::file_status status = fs::status(entry, error);
      if (error) {
        leave_out(entry, error.message());
      } else if (fs::is_directory(status)) {
        visit(entry);
      } else if (fs::is_regular_file(status) && has_audio_name(entry.string())) {
        found.push_back(entry.string());
      }
    }
  }

  std::vector<std::string> found;

 private:
  void leave_out(const fs::path& path, const std::string& reason) const {
    warn_(polyphase::concat("left out: ", path.string(), ": ", reason));
  }

  const Warn& warn_;
  std::set<fs::path> visited_;
};

}  // namespace

std::vector<std::string> find_audio(const std::string& folder, const Warn& warn) {
  require<Error>(is_folder(folder), folder, ": expected a folder of ", kinds(), " files, there is none");
  Search search(warn);
  search.visit(folder);
  std::sort(search.found.begin(), search.found.end());
  return std::move(search.found);
}

Split split_folder(const std::string& folder, double fraction, const Warn& warn) {
  require<Error>(fraction > 0 && fraction < 1, "expected a held-out fraction between 0 and 1, got ", fraction);
  const fs::path root(folder);
  if (is_folder(root / "train") && is_folder(root / "heldout")) {
    Split split{find_audio((root / "train").string(), warn), find_audio((root / "heldout").string(), warn)};
    require<Error>(!split.train.empty() && !split.heldout.empty(), folder, ": expected ", kinds(),
                   " files in both train and heldout, found ", split.train.size(), " and ", split.heldout.size());
    return split;
  }
  std::vector<std::string> paths = find_audio(folder, warn);
  require<Error>(paths.size() >= 2, folder, ": expected at least 2 ", kinds(),
                 " files (one to learn from, one to hold out), found ", paths.size());
  const auto rank = [&](const std::string& path) { return hash_of(fs::path(path).lexically_relative(root).generic_string()); };
  std::vector<std::string> ordered = paths;
  std::stable_sort(ordered.begin(), ordered.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const auto wanted = static_cast<std::size_t>(std::llround(fraction * static_cast<double>(paths.size())));
  ordered.resize(std::clamp<std::size_t>(wanted, 1, paths.size() - 1));
  std::sort(ordered.begin(), ordered.end());
  Split split;
  for (const auto& path : paths) {
    (std::binary_search(ordered.begin(), ordered.end(), path) ? split.heldout : split.train).push_back(path);
  }
  return split;
}

}  // namespace training
