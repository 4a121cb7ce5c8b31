#pragma once
// Numbers as they come, one line each, for whoever watches and for the plots.

#include <cstdint>
#include <initializer_list>
#include <string>

namespace training {

/// A CSV file whose first column is the step.
class CsvLog {
 public:
  /// Opens for appending; lines of an earlier run past `keep_until` (what a resumed run does again) are taken out first, all of
  /// them where it is 0, and so are lines that are not whole, as a process that was killed leaves behind. Throws FormatError.
  CsvLog(const std::string& path, const std::string& header, std::int64_t keep_until);
  ~CsvLog();
  CsvLog(const CsvLog&) = delete;
  CsvLog& operator=(const CsvLog&) = delete;

  /// Appends a line, at once visible to readers. Throws FormatError where it cannot be written.
  void write(std::int64_t step, std::initializer_list<double> values);
  /// Writes all of it again where somebody removed or moved the file. Throws FormatError.
  void restore();

 private:
  void put(const std::string& text);
  [[nodiscard]] std::string read_open_file() const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace training
