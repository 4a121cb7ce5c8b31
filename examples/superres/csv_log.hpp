#pragma once
// Numbers as they come, one line each, for whoever watches and for the plots.

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <string>

namespace superres {

/// A CSV file whose first column is the step.
class CsvLog {
 public:
  /// Opens for appending; lines of an earlier run past `keep_until` (what a resumed run does again) are taken out first, all of
  /// them where it is 0. Throws FormatError.
  CsvLog(const std::string& path, const std::string& header, std::int64_t keep_until);
  /// Appends a line, at once visible to readers. Throws FormatError where it cannot be written.
  void write(std::int64_t step, std::initializer_list<double> values);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace superres
