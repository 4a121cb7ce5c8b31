#pragma once
// Sound that comes through a pipe: kept in a file while the program runs, so that all of it can be read like any other file.

#include <cstdint>
#include <string>

namespace polyphase::program {

/// "-": standard input where sound is read, standard output where it is written.
inline constexpr const char* kStandardStream = "-";

/// What may come through a pipe.
enum class PipeContent : std::uint8_t {
  wav,
  any  ///< but not nothing
};

/// Where the sound is that a name stands for: a file, or for "-" and pipes a copy of what came through, which has no name and
/// goes with this object. Copies are kept in the folder for temporary files (TMPDIR).
class PipeInput {
 public:
  /// Reads a pipe to its end. Never waits for a pipe that nobody writes to. Throws FormatError
  /// naming the input, at once where it is a terminal, a device or not of the content.
  explicit PipeInput(const std::string& name, PipeContent content = PipeContent::wav);
  ~PipeInput();
  PipeInput(const PipeInput&) = delete;
  PipeInput& operator=(const PipeInput&) = delete;

  /// A path to read from, once.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Whether the user stopped the program before the pipe's end (InterruptGuard); there is nothing to read then.
  [[nodiscard]] bool is_interrupted() const { return is_interrupted_; }

 private:
  void copy(int from, const std::string& name, PipeContent content);

  std::string path_;
  int copy_ = -1;
  bool is_interrupted_ = false;
};

}  // namespace polyphase::program
