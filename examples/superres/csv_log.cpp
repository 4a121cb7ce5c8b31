#include "csv_log.hpp"

#include <cstdlib>
#include <sstream>

#include "io/atomic_file.hpp"
#include "tensor/error.hpp"

namespace superres {

using polyphase::FormatError;
using polyphase::require;

CsvLog::CsvLog(const std::string& path, const std::string& header, std::int64_t keep_until) : path_(path) {
  std::string kept = header + "\n";
  std::ifstream old(path);
  std::string line;
  std::getline(old, line);  // the header
  while (keep_until > 0 && std::getline(old, line)) {
    if (std::strtoll(line.c_str(), nullptr, 10) <= keep_until) kept += line + "\n";
  }
  polyphase::AtomicFile file("train", path);
  file.write(kept.data(), kept.size());
  file.commit();
  file_.open(path, std::ios::app);
  require<FormatError>(file_.is_open(), path, ": cannot be opened for writing");
}

void CsvLog::write(std::int64_t step, std::initializer_list<double> values) {
  std::ostringstream line;
  line.imbue(std::locale::classic());
  line << step;
  line.precision(7);
  for (const double value : values) line << ',' << value;
  file_ << line.str() << '\n' << std::flush;
  require<FormatError>(static_cast<bool>(file_), path_, ": cannot be written (is the disk full?)");
}

}  // namespace superres
