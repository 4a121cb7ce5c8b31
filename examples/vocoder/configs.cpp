#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "commands.hpp"

namespace vocoder {

namespace fs = std::filesystem;

std::vector<std::string> config_names() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(VOCODER_CONFIGS, ignored)) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_config(const std::string& name) {
  const std::vector<std::string> names = config_names();
  const bool is_known = std::binary_search(names.begin(), names.end(), name);
  std::ifstream file(is_known ? std::string(VOCODER_CONFIGS) + "/" + name + ".json" : name, std::ios::binary);
  std::string known;
  for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
  std::error_code ignored;
  pp::require<pp::Error>(file.is_open() && (is_known || fs::is_regular_file(name, ignored)), name,
                         ": expected a JSON file or one of ", known);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace vocoder
