#include "split.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>

#include "audio_file.hpp"
#include "tensor/error.hpp"

namespace superres {
namespace {

namespace fs = std::filesystem;
using polyphase::Error;
using polyphase::require;

std::string kinds() { return reads_flac() ? "WAV or FLAC" : "WAV"; }

// FNV-1a, then a mix so that names that differ in one digit fall far apart (splitmix64's finaliser).
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

}  // namespace

std::vector<std::string> find_audio(const std::string& folder) {
  require<Error>(fs::is_directory(folder), folder, ": expected a folder of ", kinds(), " files, there is none");
  std::vector<std::string> paths;
  const auto options = fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(folder, options)) {
    if (entry.is_regular_file() && has_audio_name(entry.path().string())) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Split split_folder(const std::string& folder, double fraction) {
  require<Error>(fraction > 0 && fraction < 1, "expected a held-out fraction between 0 and 1, got ", fraction);
  const fs::path root(folder);
  if (fs::is_directory(root / "train") && fs::is_directory(root / "heldout")) {
    Split split{find_audio((root / "train").string()), find_audio((root / "heldout").string())};
    require<Error>(!split.train.empty() && !split.heldout.empty(), folder, ": expected ", kinds(),
                   " files in both train and heldout, found ", split.train.size(), " and ", split.heldout.size());
    return split;
  }
  std::vector<std::string> paths = find_audio(folder);
  require<Error>(paths.size() >= 2, folder, ": expected at least 2 ", kinds(),
                 " files (one to learn from, one to hold out), found ", paths.size());
  const auto rank = [&](const std::string& path) { return hash_of(fs::relative(path, root).generic_string()); };
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

}  // namespace superres
