#pragma once
// The only use of libsndfile; a build without it has the same function, which returns null.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "program/audio/audio_file.hpp"

namespace polyphase::program {

/// The size of a data chunk, read instead of one that the file leaves open.
struct SizePatch {
  std::uint64_t position = 0;  ///< of its first byte in the file
  std::uint32_t size = 0;
};

/// A reader for any format that libsndfile knows; null in a build without libsndfile. Throws FormatError with libsndfile's
/// reason and the file's `name`.
[[nodiscard]] std::unique_ptr<AudioReader> open_with_sndfile(const std::string& path, const std::string& name,
                                                             const std::optional<SizePatch>& patch = {});

}  // namespace polyphase::program
