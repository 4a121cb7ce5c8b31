#include "program/audio/wav_writer.hpp"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>

#include "program/audio/pipe_input.hpp"
#include "program/audio/wav_format.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {
namespace {

int width_of(SampleFormat format) {
  switch (format) {
    case SampleFormat::pcm16:
      return 2;
    case SampleFormat::pcm24:
      return 3;
    case SampleFormat::float32:
      break;
  }
  return 4;
}

}  // namespace

WavWriter::WavWriter(const std::string& path, const AudioInfo& info, SampleFormat format, Container container)
    : path_(path), info_(info), format_(format), container_(container) {
  require<FormatError>(info.rate > 0 && info.channels > 0 && info.channels < 65536 && (info.frames >= 0 || is_open()), path_,
                       ": expected a rate, channels and a length, got ", info.rate, " Hz, ", info.channels, " channels, ",
                       info.frames, " frames");
  if (path != kStandardStream) file_.emplace("write_wav", path);
  const std::vector<unsigned char> head = header(is_open() ? 0 : info_.frames);
  write_bytes(head.data(), head.size());
}

void WavWriter::write_bytes(const void* data, std::size_t bytes) {
  if (file_) {
    file_->write(data, bytes);
    return;
  }
  const auto* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(STDOUT_FILENO, next, bytes);
    if (count < 0 && errno == EINTR) continue;
    require<FormatError>(count > 0, "write_wav: standard output: writing failed: ", std::generic_category().message(errno));
    next += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

// If the length is not known yet, the header reserves a chunk that can become RF64's (EBU Tech 3306).
std::vector<unsigned char> WavWriter::header(std::int64_t frames) const {
  if (container_ == Container::raw) return {};
  constexpr std::uint64_t kLargeBytes = 28;
  const int width = width_of(format_);
  const auto frame_bytes = static_cast<std::uint64_t>(info_.channels * width);
  const bool is_endless = is_open() && !file_;
  const std::uint64_t data = static_cast<std::uint64_t>(frames) * frame_bytes;
  const bool large = data > 0xFFFFFF00ULL, reserves = large || (is_open() && file_);
  const std::uint64_t riff = 4 + (reserves ? 8 + kLargeBytes : 0U) + 24 + 8 + data + (data & 1);
  std::array<unsigned char, 96> head{};
  std::size_t used = 0;
  const auto text = [&](const char* name) {
    std::memcpy(head.data() + used, name, 4);
    used += 4;
  };
  const auto number = [&](std::uint64_t value, int bytes) {
    wav::store(head.data() + used, value, bytes);
    used += static_cast<std::size_t>(bytes);
  };
  text(large ? "RF64" : "RIFF");
  number(large || is_endless ? wav::kSizeElsewhere : riff, 4);
  text("WAVE");
  if (reserves) {
    text(large ? "ds64" : "JUNK");
    number(kLargeBytes, 4);
    number(large ? riff : 0, 8);
    number(large ? data : 0, 8);
    number(large ? static_cast<std::uint64_t>(frames) : 0, 8);
    number(0, 4);
  }
  text("fmt ");
  number(16, 4);
  number(format_ == SampleFormat::float32 ? wav::kTagFloat : wav::kTagPcm, 2);
  number(static_cast<std::uint64_t>(info_.channels), 2);
  number(static_cast<std::uint64_t>(info_.rate), 4);
  number(static_cast<std::uint64_t>(info_.rate) * frame_bytes, 4);
  number(frame_bytes, 2);
  number(static_cast<std::uint64_t>(8 * width), 2);
  text("data");
  number(large || is_endless ? wav::kSizeElsewhere : data, 4);
  return {head.begin(), head.begin() + static_cast<std::ptrdiff_t>(used)};
}

void WavWriter::encode(float value, unsigned char* out) {
  if (format_ == SampleFormat::float32) {
    wav::store(out, std::bit_cast<std::uint32_t>(value), 4);
    return;
  }
  const float scale = format_ == SampleFormat::pcm16 ? 32768.0F : 8388608.0F;
  float scaled = std::nearbyint(value * scale);
  if (!(scaled >= -scale && scaled <= scale - 1)) {  // also true for NaN
    ++clipped_;
    scaled = scaled > 0 ? scale - 1 : (scaled < 0 ? -scale : 0);
  }
  wav::store(out, static_cast<std::uint64_t>(static_cast<std::int64_t>(scaled)), width_of(format_));
}

void WavWriter::write(const float* samples, std::int64_t frames) {
  require<FormatError>(is_open() || written_ + frames <= info_.frames, path_, ": expected ", info_.frames,
                       " frames in all, got ", written_ + frames);
  const auto width = static_cast<std::size_t>(width_of(format_));
  const auto count = static_cast<std::size_t>(frames * info_.channels);
  bytes_.resize(count * width);
  for (std::size_t i = 0; i < count; ++i) encode(samples[i], bytes_.data() + i * width);
  write_bytes(bytes_.data(), bytes_.size());
  written_ += frames;
}

void WavWriter::commit() {
  require<FormatError>(is_open() || written_ == info_.frames, path_, ": expected ", info_.frames, " frames, got ", written_);
  const std::int64_t bytes = written_ * info_.channels * width_of(format_);
  if (bytes % 2 != 0 && container_ == Container::wav) write_bytes("", 1);  // chunks have an even length
  if (!file_) return;
  if (is_open()) {
    const std::vector<unsigned char> head = header(written_);
    file_->rewrite(0, head.data(), head.size());
  }
  file_->commit();
}

void write_wav(const std::string& path, const Audio& audio, SampleFormat format) {
  const auto channels = static_cast<int>(audio.channels.size());
  WavWriter writer(path, {audio.rate, channels, audio.frames()}, format);
  std::vector<float> block(static_cast<std::size_t>(audio.frames() * channels));
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] = audio.channels[i % static_cast<std::size_t>(channels)][i / static_cast<std::size_t>(channels)];
  }
  writer.write(block.data(), audio.frames());
  writer.commit();
}

}  // namespace polyphase::program
