#pragma once
// The input of `polyphase run`: a mel, a latent or codes as a tensor, or sound.

#include <optional>
#include <string>

#include "networks/network.hpp"
#include "program/audio/audio_file.hpp"

namespace polyphase::tool {

/// A file's tensor `scales`: the volume of the segments of its codes.
inline constexpr const char* kScales = "scales";

/// Either a tensor or sound.
struct RunInput {
  Tensor tensor{};                        ///< (1, rows, frames)
  Tensor scales{};                        ///< (1, segments), if the file has them
  std::optional<program::Audio> audio{};  ///< of any rate and number of channels
};

/// A network's input in a word: "mel", "latent", "codes" or "audio".
[[nodiscard]] std::string word_of(NetworkInput input);

/// Reads the file `name`, or standard input for "-". It may be WAV or other sound, or a tensor from .npy, safetensors or a file
/// of torch.save. If a file has several tensors, takes the one whose name fits the network's input, and the segments' scales.
/// Throws FormatError with the file's name if it is none of these, or does not fit `format`: another number of rows, codes that
/// are not integers, numbers that are not finite, no data.
[[nodiscard]] RunInput read_input(const std::string& name, const NetworkFormat& format);

/// The first `count` codebooks of codes; all if count is 0. Throws Error with the name --codebooks if the network takes another
/// number, or no codes.
[[nodiscard]] Tensor first_codebooks(const Tensor& codes, const NetworkFormat& format, std::int64_t count);

/// Sound as the network takes it, (1, channels, samples) f32: resampled; several channels averaged to one, or one channel
/// repeated. Calls `note` for each change. Throws FormatError if that is not possible.
[[nodiscard]] Tensor as_network_audio(const program::Audio& audio, const std::string& name, std::int64_t rate,
                                      std::int64_t channels, const std::function<void(const std::string&)>& note);

}  // namespace polyphase::tool
