#include "sndfile_reader.hpp"

#include <sndfile.h>

#include "tensor/error.hpp"

namespace superres {
namespace {

using polyphase::FormatError;
using polyphase::require;

class SndfileReader : public AudioReader {
 public:
  explicit SndfileReader(std::string path) : path_(std::move(path)) {
    SF_INFO info{};
    file_.reset(sf_open(path_.c_str(), SFM_READ, &info));
    require<FormatError>(file_ != nullptr, path_, ": expected a sound file: ", sf_strerror(nullptr));
    require<FormatError>(info.samplerate > 0 && info.channels > 0, path_, ": expected a rate and channels, got ",
                         info.samplerate, " Hz and ", info.channels, " channels");
    require<FormatError>(info.frames >= 0 && info.frames < SF_COUNT_MAX, path_, ": the file does not say how long it is");
    info_ = {info.samplerate, info.channels, info.frames};
  }

  std::int64_t read(float* samples, std::int64_t frames) override {
    const sf_count_t got = sf_readf_float(file_.get(), samples, frames);
    require<FormatError>(sf_error(file_.get()) == SF_ERR_NO_ERROR, path_, ": ", sf_strerror(file_.get()));
    position_ += got;
    return got;
  }

  void seek(std::int64_t frame) override {
    if (frame == position_) return;  // seeking in FLAC decodes again
    require<FormatError>(sf_seek(file_.get(), frame, SEEK_SET) == frame, path_, ": expected a frame in 0..", info_.frames,
                         ", got ", frame);
    position_ = frame;
  }

 private:
  struct Close {
    void operator()(SNDFILE* file) const { sf_close(file); }
  };
  std::string path_;
  std::unique_ptr<SNDFILE, Close> file_;
  std::int64_t position_ = 0;
};

}  // namespace

std::unique_ptr<AudioReader> open_with_sndfile(const std::string& path) { return std::make_unique<SndfileReader>(path); }

bool reads_flac() { return true; }

}  // namespace superres
