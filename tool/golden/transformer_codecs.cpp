// Mimi and Qwen3-TTS, also in pieces as the original code computes them.

#include <algorithm>
#include <charconv>

#include "golden/networks.hpp"
#include "layers/streaming/stream.hpp"
#include "networks/mimi.hpp"
#include "networks/qwen3_12hz.hpp"
#include "ops/length.hpp"

namespace polyphase::golden {
namespace {

/// The numbers N of the outputs "audio_streamed.N": frames in a piece.
std::vector<std::int64_t> pieces_of(const File& file) {
  constexpr std::string_view kPrefix = "output/audio_streamed.";
  std::vector<std::int64_t> found;
  for (const auto& [key, tensor] : file.content.tensors) {
    if (!key.starts_with(kPrefix)) continue;
    std::int64_t frames = 0;
    const char* end = key.data() + key.size();
    const auto [read_to, error] = std::from_chars(key.data() + kPrefix.size(), end, frames);
    if (error != std::errc() || read_to != end || frames < 1) file.fail("expected a number of frames at the end of " + key);
    found.push_back(frames);
  }
  return found;
}

Tensor streamed(Network& net, const Tensor& codes, std::int64_t frames) {
  Stream stream(net);
  std::vector<Tensor> audio;
  for (std::int64_t begin = 0; begin < codes.size(2); begin += frames)
    audio.push_back(stream.push(codes.narrow(2, begin, std::min(frames, codes.size(2) - begin))));
  audio.push_back(stream.finish());
  return cat(audio, 2);
}

std::int64_t number(const NetworkFile& file, const std::string& name) { return file.input(name).item<std::int64_t>(); }

}  // namespace

NamedTensors mimi_outputs(const NetworkFile& file) {
  MimiConfig config = MimiConfig::parse(file.config());
  Mimi net(config);
  file.prepare(net);
  const Tensor codes = file.input("codes");
  NamedTensors outputs{{"latent", net.latent(codes)}, {"audio", net(codes)}};
  const std::vector<std::int64_t> pieces = pieces_of(file.file);
  if (pieces.empty()) return outputs;
  config.streams_as_original = true;
  Mimi original(config);
  file.prepare(original);
  for (const std::int64_t frames : pieces)
    outputs.emplace_back(concat("audio_streamed.", frames), streamed(original, codes, frames));
  return outputs;
}

NamedTensors qwen3_12hz_outputs(const NetworkFile& file) {
  Qwen3Tts12Hz net(Qwen3Tts12HzConfig::parse(file.config()));
  file.prepare(net);
  const Tensor codes = file.input("codes");
  NamedTensors outputs{{"audio", net(codes)}};
  if (file.has_input("chunk_size"))
    outputs.emplace_back("audio_chunked",
                         net.chunked_decode(codes, number(file, "chunk_size"), number(file, "left_context_size")));
  return outputs;
}

}  // namespace polyphase::golden
