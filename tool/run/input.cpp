#include "run/input.hpp"

#include <algorithm>
#include <array>

#include "io/weights.hpp"
#include "ops/length.hpp"
#include "program/audio/pipe_input.hpp"
#include "program/audio/resample.hpp"
#include "program/audio/wav_reader.hpp"

namespace polyphase::tool {
namespace {

/// The names that a tensor of this kind has in files, the preferred one first.
std::vector<std::string> names_of(NetworkInput input) {
  if (input == NetworkInput::codes) return {"codes", "audio_codes", "input/codes"};
  if (input == NetworkInput::mel) return {"mel", "features", "input/mel", "log_mel"};
  return {"latent", "z", "features", "input/latent"};
}

const Tensor& chosen(const std::string& name, const WeightsFile& file, NetworkInput input) {
  if (file.tensors.size() == 1) return file.tensors.front().second;
  for (const std::string& wanted : names_of(input))
    for (const auto& [own, tensor] : file.tensors)
      if (own == wanted) return tensor;
  std::string found;
  for (std::size_t i = 0; i < std::min<std::size_t>(file.tensors.size(), 5); ++i)
    found += (i == 0 ? "" : ", ") + file.tensors[i].first;
  throw FormatError(concat(name, ": expected one tensor, or one that is called ", names_of(input).front(), ", got ",
                           file.tensors.size(), found.empty() ? "" : ": ", found));
}

/// The volumes that a file has for segments, (1, segments); undefined: none.
Tensor scales_of(const std::string& name, const WeightsFile& file) {
  for (const auto& [own, tensor] : file.tensors) {
    if (own != kScales) continue;
    require<FormatError>(tensor.rank() == 1 && tensor.numel() >= 1 && is_floating_point(tensor.dtype()), name, ": expected ",
                         kScales, " (segments) of floating-point numbers, got ", tensor.shape(), " of ", tensor.dtype());
    require_finite(name, {{kScales, tensor}});
    return tensor.unsqueeze(0);
  }
  return {};
}

Tensor fitted(const std::string& name, const Tensor& tensor, const NetworkFormat& format) {
  const std::string word = word_of(format.input);
  Tensor input = tensor.rank() == 2 ? tensor.unsqueeze(0) : tensor;
  const bool has_rows = input.rank() == 3 && input.size(0) == 1 && input.size(2) >= 1 &&
                        (input.size(1) == format.rows ||
                         (format.input == NetworkInput::codes && input.size(1) >= 1 && input.size(1) <= format.rows));
  require<FormatError>(has_rows, name, ": expected ", word, " (", format.rows, ", frames) or (1, ", format.rows,
                       ", frames), got ", tensor.shape());
  const bool are_codes = format.input == NetworkInput::codes;
  require<FormatError>(are_codes == (input.dtype() == DType::i64), name, ": expected ",
                       are_codes ? "whole numbers" : "floating-point numbers", ", got ", input.dtype());
  require_finite(name, {{"the " + word, input}});
  return input;
}

}  // namespace

std::string word_of(NetworkInput input) {
  switch (input) {
    case NetworkInput::mel:
      return "mel";
    case NetworkInput::latent:
      return "latent";
    case NetworkInput::codes:
      return "codes";
    default:
      return "audio";
  }
}

RunInput read_input(const std::string& name, const NetworkFormat& format) {
  const program::PipeInput pipe(name, program::PipeContent::any);
  if (program::WavReader::recognises(pipe.path()) || program::has_audio_name(name)) {
    const auto reader = program::open_audio(pipe.path(), name);
    program::Audio audio = read_audio(*reader, name);
    require<FormatError>(audio.frames() > 0, name, ": there is no sound in it (0 samples)");
    return {.audio = std::move(audio)};
  }
  const WeightsFile file = load_weights(pipe.path());
  return {.tensor = fitted(name, chosen(name, file, format.input), format), .scales = scales_of(name, file)};
}

Tensor first_codebooks(const Tensor& codes, const NetworkFormat& format, std::int64_t count) {
  if (count == 0) return codes;
  require<Error>(format.input == NetworkInput::codes, "--codebooks: expected a network that takes codes, this one takes ",
                 word_of(format.input));
  require<Error>(count >= 1 && count <= codes.size(1), "--codebooks: expected 1 to ", codes.size(1),
                 ", as many as there are codes of a frame, got ", count);
  return codes.narrow(1, 0, count).contiguous();
}

Tensor as_network_audio(const program::Audio& audio, const std::string& name, std::int64_t rate, std::int64_t channels,
                        const std::function<void(const std::string&)>& note) {
  require<FormatError>(rate > 0, name, ": the network's configuration does not say its sampling rate");
  std::vector<std::vector<float>> sound = audio.channels;
  const auto have = static_cast<std::int64_t>(sound.size());
  if (channels == 1 && have > 1) {
    for (std::size_t c = 1; c < sound.size(); ++c)
      for (std::size_t i = 0; i < sound[0].size(); ++i) sound[0][i] += sound[c][i];
    for (float& sample : sound[0]) sample /= static_cast<float>(have);
    sound.resize(1);
    note(concat(name, ": ", have, " channels are averaged to one"));
  } else if (have == 1 && channels > 1) {
    sound.resize(static_cast<std::size_t>(channels), sound[0]);
    note(concat(name, ": its one channel is used ", channels, " times"));
  }
  require<FormatError>(static_cast<std::int64_t>(sound.size()) == channels, name, ": expected ", channels, " channels, got ",
                       have);
  if (audio.rate != rate) {
    program::require_convertible(name, audio.rate, static_cast<int>(rate));
    for (std::vector<float>& channel : sound) channel = program::resample(channel, rate, audio.rate);
    note(concat(name, ": resampled from ", audio.rate, " to ", rate, " Hz"));
  }
  std::vector<Tensor> rows;
  for (const std::vector<float>& channel : sound)
    rows.push_back(Tensor::from_vector(channel, {static_cast<std::int64_t>(channel.size())}, Device::cpu()));
  return stack(rows, 0).unsqueeze(0);
}

}  // namespace polyphase::tool
