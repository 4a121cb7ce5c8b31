#include "training/csv_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <locale>
#include <sstream>
#include <system_error>

#include "io/atomic_file.hpp"
#include "tensor/error.hpp"

namespace training {
namespace {

using polyphase::FormatError;
using polyphase::require;

std::string reason() { return std::generic_category().message(errno); }

// The complete lines after the header of `text` that have as many columns as the header and belong to a step up to `last`.
std::string whole_lines(const std::string& text, const std::string& header, std::int64_t last) {
  std::string kept;
  std::size_t begin = std::min(text.find('\n'), text.size() - 1) + 1;
  for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin);
    const bool is_whole = std::count(line.begin(), line.end(), ',') == std::count(header.begin(), header.end(), ',');
    if (is_whole && std::strtoll(line.c_str(), nullptr, 10) <= last) kept += line + "\n";
  }
  return kept;
}

void write_whole(const std::string& path, const std::string& text) {
  polyphase::AtomicFile file("train", path);
  file.write(text.data(), text.size());
  file.commit();
}

int open_to_append(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  require<FormatError>(descriptor >= 0, path, ": cannot be opened for writing: ", reason());
  return descriptor;
}

}  // namespace

CsvLog::CsvLog(const std::string& path, const std::string& header, std::int64_t keep_until) : path_(path) {
  std::string text = header + "\n";
  if (keep_until > 0) {
    std::ifstream old(path, std::ios::binary);
    const std::string before{std::istreambuf_iterator<char>(old), std::istreambuf_iterator<char>()};
    text += whole_lines(before, header, keep_until);
  }
  write_whole(path, text);
  descriptor_ = open_to_append(path);
}

CsvLog::~CsvLog() { ::close(descriptor_); }

void CsvLog::write(std::int64_t step, std::initializer_list<double> values) {
  std::ostringstream line;
  line.imbue(std::locale::classic());
  line << step;
  line.precision(7);
  for (const double value : values) line << ',' << value;
  put(line.str() + "\n");
}

void CsvLog::put(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + done, text.size() - done);
    require<FormatError>(count >= 0 || errno == EINTR, path_, ": cannot be written: ", reason());
    done += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
}

void CsvLog::restore() {
  struct stat mine {};
  struct stat there {};
  if (::stat(path_.c_str(), &there) == 0 && ::fstat(descriptor_, &mine) == 0 && there.st_ino == mine.st_ino &&
      there.st_dev == mine.st_dev) {
    return;
  }
  write_whole(path_, read_open_file());
  const int descriptor = open_to_append(path_);
  ::close(descriptor_);
  descriptor_ = descriptor;
}

// The content written so far can be read while the file is open, also after its name was removed.
std::string CsvLog::read_open_file() const {
  std::string text;
  std::array<char, 1 << 16> block{};
  for (;;) {
    const ssize_t count = ::pread(descriptor_, block.data(), block.size(), static_cast<off_t>(text.size()));
    require<FormatError>(count >= 0 || errno == EINTR, path_, ": cannot be read: ", reason());
    if (count == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
}

}  // namespace training
