#include "run/output.hpp"

#include <unistd.h>

#include <cstdio>

#include "io/npy.hpp"
#include "ops/length.hpp"
#include "program/audio/pipe_input.hpp"

namespace polyphase::tool {
namespace {

void require_no_terminal(const std::string& path) {
  require<FormatError>(path != program::kStandardStream || isatty(STDOUT_FILENO) == 0, path,
                       ": expected a pipe or a file on standard output, got a terminal");
}

}  // namespace

bool is_npy_name(const std::string& path) { return path.ends_with(".npy"); }
bool is_array_name(const std::string& path) { return is_npy_name(path) || path.ends_with(".safetensors"); }

AudioOutput::AudioOutput(const std::string& path, std::int64_t rate, std::int64_t channels, const OutputOptions& options)
    : path_(path), options_(options) {
  require_no_terminal(path);
  if (!is_npy_name(path))
    wav_.emplace(path, program::AudioInfo{static_cast<int>(rate), static_cast<int>(channels), program::kUnknownLength},
                 options.format, options.container);
}

void AudioOutput::write(const Tensor& audio) {
  const Tensor host = audio.detach().cpu().to(DType::f32);
  require<ShapeError>(host.rank() == 3 && host.size(0) == 1, path_, ": expected audio (1, channels, samples), got ",
                      host.shape());
  const std::int64_t frames = host.size(2);
  if (options_.keeps_samples) {
    const std::vector<float> first = host.select(1, 0).to_vector<float>();
    samples_.insert(samples_.end(), first.begin(), first.end());
  }
  if (wav_) {
    const std::vector<float> interleaved = host.select(0, 0).transpose(0, 1).to_vector<float>();
    wav_->write(interleaved.data(), frames);
  } else {
    pieces_.push_back(host.select(0, 0).clone());
  }
  frames_ += frames;
}

void AudioOutput::commit() {
  if (wav_) {
    wav_->commit();
  } else {
    write_array(path_, cat(pieces_, 1));
  }
}

void write_array(const std::string& path, const Tensor& tensor) {
  if (path != program::kStandardStream) {
    save_npy(path, tensor);
    return;
  }
  require_no_terminal(path);
  const std::string bytes = to_npy(tensor);
  require<FormatError>(std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size(), path, ": writing failed");
}

}  // namespace polyphase::tool
