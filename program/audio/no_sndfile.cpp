// Replaces sndfile_reader.cpp in a build without libsndfile.
#include "program/audio/sndfile_reader.hpp"

namespace polyphase::program {

std::unique_ptr<AudioReader> open_with_sndfile(const std::string&, const std::string&, const std::optional<SizePatch>&) {
  return nullptr;
}

bool reads_flac() { return false; }

}  // namespace polyphase::program
