#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "commands.hpp"
#include "shared.hpp"
#include "trainer.hpp"
#include "upsampler.hpp"

namespace superres {
namespace {

constexpr int kMostChannels = 1024;  // libsndfile's limit; the memory used grows with the channels

// Frames read at a time: limits the memory for all channels, before and after a change of rate.
std::int64_t block_of(const AudioInfo& info, int low_rate) {
  constexpr std::int64_t kFrames = 16384;
  constexpr std::int64_t kSamples = 1 << 20;
  const std::int64_t frames = std::min(kFrames, kSamples / info.channels);
  return std::max<std::int64_t>(frames * std::min(info.rate, low_rate) / low_rate, 1);
}

// Resamples every channel of an interleaved stream.
class FrameResampler {
 public:
  FrameResampler(int channels, int to, int from)
      : channels_(static_cast<std::size_t>(channels)), resamplers_(channels_, Resampler(to, from)) {}

  // Empty `frames` end the stream.
  std::vector<float> process(std::span<const float> frames) {
    std::vector<float> output;
    for (std::size_t c = 0; c < channels_; ++c) {
      std::vector<float> channel;
      for (std::size_t i = c; i < frames.size(); i += channels_) channel.push_back(frames[i]);
      std::vector<float> changed;
      if (frames.empty()) {
        resamplers_[c].flush(changed);
      } else {
        resamplers_[c].process(channel, changed);
      }
      output.resize(changed.size() * channels_);
      for (std::size_t i = 0; i < changed.size(); ++i) output[i * channels_ + c] = changed[i];
    }
    return output;
  }

 private:
  std::size_t channels_;
  std::vector<Resampler> resamplers_;
};

// Turns the names of the standard streams into those streams.
UpsampleCommand with_streams(UpsampleCommand command) {
  if (command.input == "/dev/stdin") command.input = kStandardStream;
  if (command.output == "/dev/stdout") command.output = kStandardStream;
  return command;
}

// The output must not replace the input or the model, by whatever name or link it is given.
void require_own_output(const UpsampleCommand& command) {
  const auto file_of = [](const std::string& name, const char* stream) { return name == kStandardStream ? stream : name; };
  const std::string output = file_of(command.output, "/dev/stdout");
  for (const auto& [path, what] :
       {std::pair(file_of(command.input, "/dev/stdin"), "input"), std::pair(command.model, "model")}) {
    std::error_code ignored;  // set if the file does not exist; then it is no other file either
    const bool is_file = std::filesystem::is_regular_file(path, ignored);
    pp::require<pp::Error>(!is_file || !std::filesystem::equivalent(path, output, ignored), command.output,
                           ": expected an output of its own, got the ", what, "'s file");
  }
  if (command.output == kStandardStream) {
    pp::require<pp::Error>(isatty(STDOUT_FILENO) == 0, command.output,
                           ": expected a pipe or a file for the sound on standard output, got a terminal");
    return;
  }
  std::error_code ignored;
  const auto status = std::filesystem::status(output, ignored);
  const bool is_writable = !std::filesystem::exists(status) || std::filesystem::is_regular_file(status);
  pp::require<pp::Error>(is_writable, output, ": expected a regular file, or - for standard output, got a ",
                         std::filesystem::is_directory(status) ? "folder"
                         : std::filesystem::is_fifo(status)    ? "pipe"
                                                               : "device");
}

void require_rate(const UpsampleCommand& command, int rate, const ModelOptions& model) {
  require_convertible(command.input, rate, model.low_rate());
  pp::require<pp::Error>(rate <= model.rate || command.allow_lower_rate, command.input, " is at ", rate,
                         " Hz, the model gives ", model.rate, " Hz: the rate is lowered only with --allow-lower-rate");
}

void write_frames(WavWriter& writer, std::vector<float>& frames, int channels) {
  writer.write(frames.data(), static_cast<std::int64_t>(frames.size()) / channels);
  frames.clear();
}

// Runs the whole input through the network; false if the user stopped it.
bool stream(AudioReader& reader, const UpsampleCommand& command, UpsamplingNetwork& network, WavWriter& writer) {
  const AudioInfo& info = reader.info();
  const int low_rate = network.options().low_rate();
  const bool same_rate = info.rate == low_rate;
  const auto channels = static_cast<std::size_t>(info.channels);
  const std::int64_t block = block_of(info, low_rate);
  FrameResampler resampler(info.channels, low_rate, info.rate);
  Upsampler upsampler(network, info.channels, command.chunk);
  StreamProgress progress(info.frames, info.rate);
  std::vector<float> output;
  for (std::int64_t done = 0; done < info.frames;) {
    const std::int64_t count = std::min(block, info.frames - done);
    const Audio audio = read_audio(reader, command.input, done, count);
    std::vector<float> frames(static_cast<std::size_t>(count) * channels);
    for (std::size_t i = 0; i < frames.size(); ++i) frames[i] = audio.channels[i % channels][i / channels];
    upsampler.process(same_rate ? frames : resampler.process(frames), output);
    write_frames(writer, output, info.channels);
    done += count;
    if (InterruptGuard::interrupted()) return false;
    progress.show(done);
  }
  if (!same_rate) upsampler.process(resampler.process({}), output);
  upsampler.flush(output);
  write_frames(writer, output, info.channels);
  return !InterruptGuard::interrupted();
}

int stopped(const UpsampleCommand& command) {
  std::fprintf(stderr, "superres: upsample: stopped before the end, %s\n",
               command.output == kStandardStream ? "standard output has a part of the sound"
                                                 : (command.output + " is not written").c_str());
  return kInterruptedExit;
}

}  // namespace

int upsample(const UpsampleCommand& given) {
  const UpsampleCommand command = with_streams(given);
  require_own_output(command);
  const InterruptGuard guard;
  UpsamplingNetwork network = load_network(command.model);
  const ModelOptions& model = network.options();
  const PipeInput input(command.input);
  if (input.is_interrupted()) return stopped(command);
  const auto reader = open_audio(input.path(), command.input);
  const AudioInfo& info = reader->info();
  pp::require<pp::Error>(info.frames > 0, command.input, ": there is no sound in it (0 samples)");
  pp::require<pp::Error>(info.channels <= kMostChannels, command.input, ": expected at most ", kMostChannels, " channels, got ",
                         info.channels);
  require_rate(command, info.rate, model);

  FILE* words = command.output == kStandardStream ? stderr : stdout;
  const bool same_rate = info.rate == model.low_rate();
  const std::int64_t low_frames = (info.frames * model.low_rate() + info.rate - 1) / info.rate;  // as Resampler gives
  if (!same_rate) {
    std::fprintf(
        words, "note: %s is at %d Hz and the network takes %d Hz: resampled first, so what lies above %d Hz is the network's\n",
        command.input.c_str(), info.rate, model.low_rate(), model.low_rate() / 2);
  }
  WavWriter writer(command.output, {model.rate, info.channels, low_frames * model.factor}, command.format);
  if (!stream(*reader, command, network, writer)) return stopped(command);
  writer.commit();
  if (writer.clipped() > 0) {
    std::fprintf(words, "note: %s samples were louder than full scale and are clipped; --format float32 keeps them\n",
                 grouped(writer.clipped()).c_str());
  }
  std::fprintf(words, "%s: %s at %d Hz, %d channel%s\n", command.output.c_str(),
               duration(static_cast<double>(low_frames) / model.low_rate()).c_str(), model.rate, info.channels,
               info.channels == 1 ? "" : "s");
  return 0;
}

}  // namespace superres
