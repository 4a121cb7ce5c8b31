#include "program/audio/sndfile_reader.hpp"

#include <sndfile.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "program/audio/wav_format.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {
namespace {

// A file with the patch applied, as libsndfile sees it.
class PatchedFile {
 public:
  PatchedFile(const std::string& path, const std::optional<SizePatch>& patch)
      : patch_(patch), file_(path, std::ios::binary), bytes_(static_cast<sf_count_t>(std::filesystem::file_size(path))) {
    require<FormatError>(file_.is_open(), path, ": cannot be opened");
  }

  static SF_VIRTUAL_IO functions() {
    return {.get_filelen = [](void* file) { return of(file).bytes_; },
            .seek = [](sf_count_t offset, int whence, void* file) { return of(file).seek(offset, whence); },
            .read = [](void* data, sf_count_t count,
                       void* file) { return of(file).read(static_cast<unsigned char*>(data), count); },
            .write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; },
            .tell = [](void* file) { return of(file).position_; }};
  }

 private:
  static PatchedFile& of(void* file) { return *static_cast<PatchedFile*>(file); }

  sf_count_t seek(sf_count_t offset, int whence) {
    if (whence == SEEK_CUR) offset += position_;
    if (whence == SEEK_END) offset += bytes_;
    position_ = std::clamp<sf_count_t>(offset, 0, bytes_);
    return position_;
  }

  sf_count_t read(unsigned char* data, sf_count_t count) {
    file_.clear();
    file_.seekg(position_);
    file_.read(reinterpret_cast<char*>(data), count);
    const sf_count_t got = file_.gcount();
    if (patch_) {
      unsigned char size[4];
      wav::store(size, patch_->size, sizeof size);
      for (sf_count_t i = 0; i < 4; ++i) {
        const sf_count_t place = static_cast<sf_count_t>(patch_->position) + i - position_;
        if (place >= 0 && place < got) data[place] = size[i];
      }
    }
    position_ += got;
    return got;
  }

  std::optional<SizePatch> patch_;
  std::ifstream file_;
  sf_count_t bytes_;
  sf_count_t position_ = 0;
};

class SndfileReader : public AudioReader {
 public:
  SndfileReader(const std::string& path, std::string name, const std::optional<SizePatch>& patch)
      : path_(std::move(name)), bytes_(std::make_unique<PatchedFile>(path, patch)) {
    const SF_INFO info = open();
    require<FormatError>(info.samplerate > 0 && info.channels > 0, path_, ": expected a rate and channels, got ",
                         info.samplerate, " Hz and ", info.channels, " channels");
    info_ = {info.samplerate, info.channels, info.frames};
    if (info.frames < 0 || info.frames == SF_COUNT_MAX) info_.frames = count_frames();
  }

  std::int64_t read(float* samples, std::int64_t frames) override {
    const sf_count_t got = sf_readf_float(file_.get(), samples, frames);
    require<FormatError>(sf_error(file_.get()) == SF_ERR_NO_ERROR, path_, ": ", sf_strerror(file_.get()));
    position_ += got;
    return got;
  }

  void seek(std::int64_t frame) override {
    require<FormatError>(frame >= 0 && frame <= info_.frames, path_, ": expected a frame in 0..", info_.frames, ", got ",
                         frame);
    if (frame == position_) return;  // seeking in FLAC would decode again
    if (is_seekable_) {
      require<FormatError>(sf_seek(file_.get(), frame, SEEK_SET) == frame, path_, ": frame ", frame, " of ", info_.frames,
                           " cannot be reached");
      position_ = frame;
      return;
    }
    // GSM and some ADPCM must be decoded from their start.
    if (frame < position_) static_cast<void>(open());
    require<FormatError>(skip(frame - position_) == 0, path_, ": frame ", frame, " of ", info_.frames, " cannot be reached");
  }

 private:
  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };

  SF_INFO open() {
    SF_INFO info{};
    SF_VIRTUAL_IO functions = PatchedFile::functions();
    file_.reset();
    functions.seek(0, SEEK_SET, bytes_.get());
    file_.reset(sf_open_virtual(&functions, SFM_READ, &info, bytes_.get()));
    require<FormatError>(file_ != nullptr, path_, ": expected a sound file: ", sf_strerror(nullptr));
    is_seekable_ = info.seekable != 0;
    position_ = 0;
    return info;
  }

  // Reads up to `frames` frames and drops them; returns how many were missing.
  std::int64_t skip(std::int64_t frames) {
    constexpr std::int64_t kBlock = 4096;
    std::vector<float> block(static_cast<std::size_t>(kBlock * info_.channels));
    while (frames > 0) {
      const std::int64_t got = read(block.data(), std::min(kBlock, frames));
      if (got == 0) break;
      frames -= got;
    }
    return frames;
  }

  // Streamed FLAC does not give its length.
  std::int64_t count_frames() {
    const std::int64_t frames = SF_COUNT_MAX - skip(SF_COUNT_MAX);
    static_cast<void>(open());
    return frames;
  }

  std::string path_;  // for error texts
  std::unique_ptr<PatchedFile> bytes_;
  std::unique_ptr<SNDFILE, Close> file_;
  bool is_seekable_ = false;
  std::int64_t position_ = 0;
};

}  // namespace

std::unique_ptr<AudioReader> open_with_sndfile(const std::string& path, const std::string& name,
                                               const std::optional<SizePatch>& patch) {
  return std::make_unique<SndfileReader>(path, name, patch);
}

bool reads_flac() { return true; }

}  // namespace polyphase::program
