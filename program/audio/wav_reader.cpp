#include "program/audio/wav_reader.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "program/audio/wav_format.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {

bool WavReader::recognises(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char head[wav::kOpeningBytes] = {};
  file.read(head, sizeof head);
  return file && wav::opens_wav(head);
}

WavReader::WavReader(const std::string& path, const std::string& name) : path_(name), file_(path, std::ios::binary) {
  require<FormatError>(file_.is_open(), path_, ": cannot be opened");
  file_bytes_ = std::filesystem::file_size(path);
  read_chunks();
}

void WavReader::take(void* data, std::uint64_t bytes, const char* what) {
  file_.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes));
  if (!file_) throw FormatError(concat(path_, ": the file ends inside ", what), static_cast<std::int64_t>(position_));
  position_ += bytes;
}

// A chunk is a name, a size and that many bytes, padded to an even number; unknown chunks are skipped.
void WavReader::read_chunks() {
  unsigned char head[12];
  take(head, sizeof head, "the RIFF header");
  const bool is_rf64 = std::memcmp(head, "RF64", 4) == 0;
  riff_end_ = 8 + wav::load(head + 4, 4);
  while (data_start_ == 0) {
    require<FormatError>(position_ + 8 <= file_bytes_, path_, ": expected a 'data' chunk, the file ends after ", file_bytes_,
                         " bytes");
    take(head, 8, "a chunk header");
    const std::uint64_t size = wav::load(head + 4, 4);
    if (std::memcmp(head, "data", 4) == 0) {
      locate_data(size);
      return;
    }
    const std::uint64_t next = position_ + size + (size & 1);
    if (std::memcmp(head, "fmt ", 4) == 0) {
      read_format(size);
    } else if (std::memcmp(head, "ds64", 4) == 0) {
      unsigned char sizes[16];
      require<FormatError>(size >= 28, path_, ": expected a ds64 chunk of 28 bytes or more, got ", size);
      take(sizes, sizeof sizes, "the ds64 chunk");
      if (is_rf64) {
        riff_end_ = 8 + wav::load(sizes, 8);
        large_data_ = wav::load(sizes + 8, 8);
      }
    }
    require<FormatError>(next <= file_bytes_, path_, ": a chunk ends at byte ", next, ", the file after ", file_bytes_);
    file_.seekg(static_cast<std::streamoff>(next));
    position_ = next;
  }
}

void WavReader::read_format(std::uint64_t size) {
  unsigned char head[40] = {};
  require<FormatError>(size >= 16, path_, ": expected a 'fmt ' chunk of 16 bytes or more, got ", size);
  take(head, std::min<std::uint64_t>(size, sizeof head), "the 'fmt ' chunk");
  tag_ = static_cast<std::uint16_t>(wav::load(head, 2));
  info_.channels = static_cast<int>(wav::load(head + 2, 2));
  const std::uint64_t rate = wav::load(head + 4, 4);
  block_bytes_ = static_cast<int>(wav::load(head + 12, 2));
  bits_ = static_cast<int>(wav::load(head + 14, 2));
  if (tag_ == wav::kTagExtensible && size >= 40) tag_ = static_cast<std::uint16_t>(wav::load(head + 24, 2));
  // Samples take whole bytes and are left-aligned; they may take more bytes than necessary.
  const int width = info_.channels > 0 && block_bytes_ % info_.channels == 0 ? block_bytes_ / info_.channels : 0;
  const bool pcm = tag_ == wav::kTagPcm && bits_ > 0 && bits_ <= 8 * width && width <= 4 && (width == 1 || bits_ > 8);
  const bool floating = tag_ == wav::kTagFloat && bits_ == 8 * width && (bits_ == 32 || bits_ == 64);
  decodes_ = pcm || floating;
  if (decodes_) bits_ = 8 * width;
  require<FormatError>(info_.channels > 0 && rate > 0 && rate < (1U << 31), path_, ": expected a rate and channels, got ", rate,
                       " Hz and ", info_.channels, " channels");
  info_.rate = static_cast<int>(rate);
}

std::string WavReader::format_name() const {
  return concat("format ", tag_, " with ", bits_, " bit in blocks of ", block_bytes_, " bytes for ", info_.channels,
                info_.channels == 1 ? " channel" : " channels");
}

// Whether a data chunk's size means "to the end of the file". A program that writes into a pipe does not know the size and
// writes 0, the largest number, or one just below 2^31.
bool WavReader::is_open(std::uint64_t size) const {
  constexpr std::uint64_t kNearlySigned = 0x7FFFF000;
  constexpr std::uint64_t kSigned = 0x80000000;
  const std::uint64_t rest = file_bytes_ - data_start_;
  if (size == 0) return riff_end_ <= data_start_ || riff_end_ > file_bytes_ + 1;  // else other chunks follow it
  if (size == (large_data_ ? ~std::uint64_t{0} : wav::kSizeElsewhere)) return true;
  return size >= kNearlySigned && size < kSigned && size > rest;
}

void WavReader::locate_data(std::uint64_t size) {
  require<FormatError>(info_.channels != 0, path_, ": the 'data' chunk comes before the 'fmt ' chunk");
  data_start_ = position_;
  if (size == wav::kSizeElsewhere) size = large_data_.value_or(size);
  const std::uint64_t rest = file_bytes_ - data_start_;
  if (is_open(size)) {
    size = rest;  // in whole frames
    open_size_ = SizePatch{data_start_ - 4, static_cast<std::uint32_t>(std::min<std::uint64_t>(rest, wav::kSizeElsewhere))};
  }
  require<FormatError>(size <= rest, path_, ": expected ", size, " bytes of samples, the file has ", rest);
  if (decodes_) info_.frames = static_cast<std::int64_t>(size) / block_bytes_;
}

void WavReader::seek(std::int64_t frame) {
  require<FormatError>(frame >= 0 && frame <= info_.frames, path_, ": expected a frame in 0..", info_.frames, ", got ", frame);
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(data_start_ + static_cast<std::uint64_t>(frame * block_bytes_)));
  next_frame_ = frame;
}

float WavReader::decode(const unsigned char* sample) const {
  const std::uint64_t raw = wav::load(sample, bits_ / 8);
  if (tag_ == wav::kTagFloat) {
    return bits_ == 32 ? std::bit_cast<float>(static_cast<std::uint32_t>(raw)) : static_cast<float>(std::bit_cast<double>(raw));
  }
  if (bits_ == 8) return (static_cast<float>(raw) - 128.0F) / 128.0F;  // the only unsigned width
  // Shifted to the top of 32 bits, so that the sign bit is in its place.
  const auto value = static_cast<std::int32_t>(static_cast<std::uint32_t>(raw << (32 - bits_)));
  return static_cast<float>(value) * (1.0F / 2147483648.0F);
}

std::int64_t WavReader::read(float* samples, std::int64_t frames) {
  frames = std::min(frames, info_.frames - next_frame_);
  if (frames <= 0) return 0;
  const auto width = static_cast<std::size_t>(bits_ / 8);
  const auto count = static_cast<std::size_t>(frames * info_.channels);
  bytes_.resize(count * width);
  file_.read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
  require<FormatError>(static_cast<bool>(file_), path_, ": expected ", info_.frames, " frames, the file ends after fewer");
  for (std::size_t i = 0; i < count; ++i) samples[i] = decode(bytes_.data() + i * width);
  next_frame_ += frames;
  return frames;
}

}  // namespace polyphase::program
