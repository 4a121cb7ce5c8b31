#pragma once
// Which files of a folder are learned from and which are held out.

#include <functional>
#include <string>
#include <vector>

namespace training {

/// Paths in order; no file is in both.
struct Split {
  std::vector<std::string> train;
  std::vector<std::string> heldout;
};

/// Hears what is left out, and why.
using Warn = std::function<void(const std::string&)>;

/// All sound files of a folder and the folders below it, links followed, sorted by path. What cannot be looked at, and a link
/// to a folder that is among them already, is left out and `warn` hears why. Throws Error if the folder does not exist.
[[nodiscard]] std::vector<std::string> find_audio(const std::string& folder, const Warn& warn);

/// Where `folder` has the subfolders train and heldout, these; else the share `fraction` of its files (at least one, and never
/// all) is held out, chosen by a hash of their path below the folder, links as they are named: the same files on every
/// machine and in every run. Throws Error with the numbers: no file, a single file, an empty subfolder, fraction outside (0,
/// 1).
[[nodiscard]] Split split_folder(const std::string& folder, double fraction, const Warn& warn);

}  // namespace training
