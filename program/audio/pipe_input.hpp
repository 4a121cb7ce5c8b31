#pragma once
// Sound from a pipe: copied to a file while the program runs, so that it can be read like any other file.

#include <cstdint>
#include <string>

namespace polyphase::program {

/// "-": standard input for reading, standard output for writing.
inline constexpr const char* kStandardStream = "-";

/// What a pipe may contain.
enum class PipeContent : std::uint8_t {
  wav,
  any  ///< any content, but not empty
};

/// The file behind a name: the file itself, or for "-" and pipes a copy of the pipe's content. The copy has no name, lives as
/// long as this object, and is in the folder for temporary files (TMPDIR).
class PipeInput {
 public:
  /// Reads a pipe to its end. Never waits for a pipe without a writer. Throws FormatError with the input's name; without
  /// reading on if it is a terminal, a device or has the wrong content.
  explicit PipeInput(const std::string& name, PipeContent content = PipeContent::wav);
  ~PipeInput();
  PipeInput(const PipeInput&) = delete;
  PipeInput& operator=(const PipeInput&) = delete;

  /// A path for reading, valid once.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Whether the user stopped the program before the pipe's end (InterruptGuard). Then there is nothing to read.
  [[nodiscard]] bool is_interrupted() const { return is_interrupted_; }

 private:
  void copy(int from, const std::string& name, PipeContent content);

  std::string path_;
  int copy_ = -1;
  bool is_interrupted_ = false;
};

}  // namespace polyphase::program
