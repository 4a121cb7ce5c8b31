#pragma once
// What sound a run learns from, written into its checkpoints: a resumed run that finds other sound is not the same run.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "training/split.hpp"

namespace training {

/// What a file is known by.
struct FileMark {
  std::string name;         ///< its path below the folder
  std::uint64_t bytes = 0;  ///< its size
  std::uint64_t hash = 0;   ///< of its content: all of a file up to kMostHashed bytes, else four blocks spread over it
  bool operator==(const FileMark&) const = default;
};

/// At most so much of a file is read, so that large files cost little. A change between the four blocks of a larger file goes
/// unnoticed unless the size changes.
inline constexpr std::uint64_t kMostHashed = 1 << 20;

struct SoundRecord {
  std::string folder;           ///< absolute
  std::vector<FileMark> files;  ///< by name, at most kMostMarks; of more files, the folders that they lie in
};

/// A checkpoint's header has room for this many marks.
inline constexpr std::size_t kMostMarks = 50000;

/// Reads the files of `split`, which lie in `folder`. A file that cannot be read has a mark too, as reading it again later
/// changes the sound.
[[nodiscard]] SoundRecord record_of(const std::string& folder, const Split& split, std::size_t most_marks = kMostMarks);

/// As text for a checkpoint, and back; nothing where the checkpoint has no record. Throws Error on a malformed one.
[[nodiscard]] std::map<std::string, std::string> to_texts(const SoundRecord& record);
[[nodiscard]] std::optional<SoundRecord> sound_record_from(const std::map<std::string, std::string>& texts);

/// What is different about the files, wherever their folders are: "1 file is gone (a.wav), 2 are new (b.wav, c.wav), 1 has
/// changed (d.wav)". Empty where nothing is.
[[nodiscard]] std::string difference(const SoundRecord& before, const SoundRecord& now);

}  // namespace training
