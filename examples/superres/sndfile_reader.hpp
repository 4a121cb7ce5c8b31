#pragma once
// The door to libsndfile; a build without it has the same function, which then knows nothing.

#include <memory>
#include <string>

#include "audio_file.hpp"

namespace superres {

/// A reader for any format libsndfile knows; null in a build without libsndfile. Throws FormatError with libsndfile's reason.
[[nodiscard]] std::unique_ptr<AudioReader> open_with_sndfile(const std::string& path);

}  // namespace superres
