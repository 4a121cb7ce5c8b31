#pragma once
// What `polyphase run` reads: a mel, a latent or codes as a tensor, or sound.

#include <optional>
#include <string>

#include "networks/network.hpp"
#include "program/audio/audio_file.hpp"

namespace polyphase::tool {

/// A file's tensor `scales`: the volume of the segments of its codes.
inline constexpr const char* kScales = "scales";

/// A tensor or sound.
struct RunInput {
  Tensor tensor{};                        ///< (1, rows, frames)
  Tensor scales{};                        ///< (1, segments), where the file has them
  std::optional<program::Audio> audio{};  ///< of any rate and number of channels
};

/// What a network takes, in a word: "mel", "latent", "codes" or "audio".
[[nodiscard]] std::string word_of(NetworkInput input);

/// Reads the file `name`, or standard input for "-": WAV and other sound, or a tensor from .npy, safetensors or a file of
/// torch.save: the only one, or the one that is called as what the network takes, and the segments' scales. Throws FormatError
/// naming the file where it is none of these, or where it does not go with `format`: another number of rows, codes that are no
/// whole numbers, numbers that are not finite, nothing.
[[nodiscard]] RunInput read_input(const std::string& name, const NetworkFormat& format);

/// The first `count` codebooks of codes; all where count is 0. Throws Error naming --codebooks where the network takes another
/// number, or no codes.
[[nodiscard]] Tensor first_codebooks(const Tensor& codes, const NetworkFormat& format, std::int64_t count);

/// Sound as a network takes it, (1, channels, samples) f32: resampled, several channels averaged to one, one channel repeated.
/// `note` hears of each change. Throws FormatError where that is not possible.
[[nodiscard]] Tensor as_network_audio(const program::Audio& audio, const std::string& name, std::int64_t rate,
                                      std::int64_t channels, const std::function<void(const std::string&)>& note);

}  // namespace polyphase::tool
