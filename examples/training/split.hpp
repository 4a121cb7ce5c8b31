#pragma once
// Divides the files of a folder into training files and held-out files.

#include <functional>
#include <string>
#include <vector>

namespace training {

/// Paths in order; no file is in both.
struct Split {
  std::vector<std::string> train;
  std::vector<std::string> heldout;
};

/// Called with what is dropped, and why.
using Warn = std::function<void(const std::string&)>;

/// All sound files of a folder and its subfolders, links followed, sorted by path. Calls `warn` for what cannot be read, and
/// for a link to a folder that is already in the list. Throws Error if the folder does not exist.
[[nodiscard]] std::vector<std::string> find_audio(const std::string& folder, const Warn& warn);

/// If `folder` has the subfolders train and heldout, uses these. Otherwise holds out the share `fraction` of its files (at
/// least one, never all), chosen by a hash of their paths below the folder, with links by their own names: the same files on
/// every machine and in every run. Throws Error with the numbers: no file, a single file, an empty subfolder, fraction outside
/// (0, 1).
[[nodiscard]] Split split_folder(const std::string& folder, double fraction, const Warn& warn);

}  // namespace training
