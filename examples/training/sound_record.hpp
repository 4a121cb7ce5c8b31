#pragma once
// A record of the sound that a run learns from, in its checkpoints: a run must not be resumed with other sound.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "training/split.hpp"

namespace training {

/// The properties by which a file is recognised.
struct FileMark {
  std::string name;         ///< its path below the folder
  std::uint64_t bytes = 0;  ///< its size
  std::uint64_t hash = 0;   ///< hash of its content: all of a file up to kMostHashed bytes, else four blocks spread over it
  bool operator==(const FileMark&) const = default;
};

/// At most this much of a file is read, so that large files cost little. A change between the four blocks of a larger file is
/// not detected unless the size changes.
inline constexpr std::uint64_t kMostHashed = 1 << 20;

struct SoundRecord {
  std::string folder;           ///< absolute
  std::vector<FileMark> files;  ///< sorted by name, at most kMostMarks; for more files, their folders
};

/// The number of marks for which a checkpoint's header has room.
inline constexpr std::size_t kMostMarks = 50000;

/// Reads the files of `split`, which are in `folder`. An unreadable file has a mark too, because reading it later would change
/// the sound.
[[nodiscard]] SoundRecord record_of(const std::string& folder, const Split& split, std::size_t most_marks = kMostMarks);

/// As text for a checkpoint, and back; empty if the checkpoint has no record. Throws Error on a malformed one.
[[nodiscard]] std::map<std::string, std::string> to_texts(const SoundRecord& record);
[[nodiscard]] std::optional<SoundRecord> sound_record_from(const std::map<std::string, std::string>& texts);

/// The differences of the files, independent of their folders: "1 file is gone (a.wav), 2 are new (b.wav, c.wav), 1 has changed
/// (d.wav)". Empty if there are none.
[[nodiscard]] std::string difference(const SoundRecord& before, const SoundRecord& now);

}  // namespace training
