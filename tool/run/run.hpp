#pragma once
// `polyphase run`: sends files through a published network.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "networks/files/model_file.hpp"
#include "run/output.hpp"
#include "tensor/device.hpp"

namespace polyphase::tool {

struct RunOptions {
  std::string model;
  ModelOptions model_options{};
  std::vector<std::string> inputs;
  std::string output;
  Device device = Device::cpu();
  Precision precision = Precision::fp32;
  DType dtype = DType::f32;
  std::int64_t codebooks = 0;  ///< 0: all of the input's
  std::int64_t stream = 0;     ///< frames pushed at a time, each result written immediately; 0: off
  std::int64_t chunk = 0;      ///< frames decoded at a time; 0: all
  std::size_t memory = 0;      ///< bytes; 0: no limit
  std::string picture{};       ///< path of the picture; empty: none
  OutputOptions out{};
};

/// "1.5GB", "800MB", "64KiB", "12345" in bytes. Throws Error.
[[nodiscard]] std::size_t parse_bytes(const std::string& text);

/// The output path of each input: `output` itself, or a file in that folder, named after the input. Throws Error if two would
/// be the same, if there are several inputs and no folder, and if an output is its own input or the model.
[[nodiscard]] std::vector<std::string> output_names(const RunOptions& options);

/// Loads the model and runs every input through it. Calls `say` with information for the user. Throws what loading, reading,
/// decoding and writing throw, with the file's name; that output then does not exist.
void run(const RunOptions& options, const std::function<void(const std::string&)>& say);

}  // namespace polyphase::tool
