#pragma once
// The kinds of golden files, each with its checker. `report` is called once per case.

#include <functional>
#include <string>

#include "golden/golden.hpp"

namespace polyphase::golden {

using Report = std::function<void(const Result&)>;

/// A golden file in memory.
struct File {
  std::string path;
  SafetensorsFile content;

  /// Throws FormatError with the names of the file and of the missing tensor or metadata.
  [[nodiscard]] const Tensor& tensor(const std::string& name) const;
  [[nodiscard]] const std::string& metadata(const std::string& name) const;
  /// The tensors with `prefix` in front, which is removed from their names. Throws FormatError if there is none.
  [[nodiscard]] NamedTensors under(const std::string& prefix) const;
  /// Throws FormatError "check: FILE: what".
  [[noreturn]] void fail(const std::string& what) const;
};

/// The dtype in which a trace or a generator computes. Throws NotImplemented for a dtype without a tolerance for them.
[[nodiscard]] DType network_dtype(const Options& options);

[[nodiscard]] bool is_conv_cases(const File& file);
void check_conv_cases(const File& file, const Options& options, const Report& report);

[[nodiscard]] bool is_train_trace(const File& file);
void check_train_trace(const File& file, const Options& options, const Report& report);

[[nodiscard]] bool is_network(const File& file);
void check_network(const File& file, const Options& options, const Report& report);

[[nodiscard]] bool is_generator(const File& file);
void check_generator(const File& file, const Options& options, const Report& report);

}  // namespace polyphase::golden
