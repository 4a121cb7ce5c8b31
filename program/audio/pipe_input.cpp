#include "program/audio/pipe_input.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "program/audio/wav_format.hpp"
#include "program/interrupt.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {
namespace {

struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

std::string system_reason() { return std::generic_category().message(errno); }

bool is_pipe(const struct stat& info) { return S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode); }

// A file without a name.
int open_copy(const std::string& name) {
  std::string pattern = (std::filesystem::temp_directory_path() / "polyphase-XXXXXX").string();
  const int copy = ::mkostemp(pattern.data(), O_CLOEXEC);
  require<FormatError>(copy >= 0, name, ": input from a pipe is stored in ", pattern,
                       ", which cannot be created: ", system_reason());
  ::unlink(pattern.c_str());
  return copy;
}

void write_all(int copy, const unsigned char* data, ssize_t bytes, const std::string& name) {
  while (bytes > 0) {
    const ssize_t count = ::write(copy, data, static_cast<std::size_t>(bytes));
    if (count < 0 && errno == EINTR) continue;
    require<FormatError>(count > 0, name, ": input from a pipe is stored in ", std::filesystem::temp_directory_path().string(),
                         ", where writing failed: ", system_reason());
    data += count;
    bytes -= count;
  }
}

}  // namespace

PipeInput::PipeInput(const std::string& name, PipeContent content) : path_(name) {
  const bool is_standard = name == kStandardStream;
  struct stat info {};
  const int status = is_standard ? ::fstat(STDIN_FILENO, &info) : ::stat(name.c_str(), &info);
  if (!is_standard && (status != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) return;  // open_audio reports the error
  require<FormatError>(status == 0, name, ": expected sound on standard input, got none: ", system_reason());
  if (S_ISREG(info.st_mode)) {
    path_ = "/dev/stdin";
    return;
  }
  require<FormatError>(is_pipe(info), name, ": expected a sound file or a pipe, got a ",
                       S_ISCHR(info.st_mode) && is_standard && ::isatty(STDIN_FILENO) == 1 ? "terminal" : "device");
  // Without O_NONBLOCK, opening a pipe without a writer would block forever.
  const Descriptor from{is_standard ? ::dup(STDIN_FILENO) : ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  require<FormatError>(from.value >= 0, name, ": cannot be opened: ", system_reason());
  copy_ = open_copy(name);
  path_ = concat("/dev/fd/", copy_);
  try {
    copy(from.value, name, content);
  } catch (...) {
    ::close(copy_);
    throw;
  }
}

PipeInput::~PipeInput() {
  if (copy_ >= 0) ::close(copy_);
}

void PipeInput::copy(int from, const std::string& name, PipeContent content) {
  constexpr int kWait = 200;  // milliseconds between checks whether the user has stopped the program
  std::array<unsigned char, 1 << 16> bytes{};
  std::size_t held = 0;  // bytes at the front of `bytes`, until there are enough to recognise the format
  const bool takes_any = content == PipeContent::any;
  bool is_wav = false;  // or any content, if that is allowed
  for (;;) {
    const ssize_t count = ::read(from, bytes.data() + held, bytes.size() - held);
    if (count == 0) break;
    if (count < 0) {
      require<FormatError>(errno == EAGAIN || errno == EINTR, name, ": reading failed: ", system_reason());
    } else {
      held += static_cast<std::size_t>(count);
      if (!is_wav && (takes_any || held >= wav::kOpeningBytes)) {
        is_wav = takes_any || wav::opens_wav(bytes.data());
        require<FormatError>(is_wav, name, ": expected a WAV file, as nothing else is read from a pipe");
      }
      if (is_wav) {
        write_all(copy_, bytes.data(), static_cast<ssize_t>(held), name);
        held = 0;
      }
    }
    for (;;) {
      pollfd ready{from, POLLIN, 0};
      if (::poll(&ready, 1, kWait) > 0) break;
      is_interrupted_ = InterruptGuard::interrupted();
      if (is_interrupted_) return;
    }
  }
  require<FormatError>(is_wav, name, takes_any ? ": expected a file" : ": expected a WAV file", ", got a pipe that ",
                       held == 0 ? "nobody writes to" : concat("ends after ", held, " bytes"));
}

}  // namespace polyphase::program
