#pragma once
// Numbers of a run, one line for each step, for people who watch and for the plots.

#include <cstdint>
#include <initializer_list>
#include <string>

namespace training {

/// A CSV file whose first column is the step.
class CsvLog {
 public:
  /// Opens for appending. First removes lines of an earlier run after step `keep_until` (which a resumed run repeats; all lines
  /// if 0), and incomplete lines, which a killed process may leave. Throws FormatError.
  CsvLog(const std::string& path, const std::string& header, std::int64_t keep_until);
  ~CsvLog();
  CsvLog(const CsvLog&) = delete;
  CsvLog& operator=(const CsvLog&) = delete;

  /// Appends a line, which readers can see immediately. Throws FormatError if it cannot be written.
  void write(std::int64_t step, std::initializer_list<double> values);
  /// Writes the whole content again if the file was removed or moved. Throws FormatError.
  void restore();

 private:
  void put(const std::string& text);
  [[nodiscard]] std::string read_open_file() const;

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace training
