#pragma once
// Options that several programs share, so that names and errors are the same.

#include <CLI/CLI.hpp>

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "cpu/threads.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {

/// An option whose text `parse` turns into `value`; if `parse` throws Error, the usage is wrong.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, Value& value, const std::string& help, const Parse& parse) {
  return app.add_option_function<std::string>(
      name,
      [&value, name, parse](const std::string& text) {
        try {
          value = parse(text);
        } catch (const Error& error) {
          throw CLI::ValidationError(name, error.what());
        }
      },
      help);
}

/// "f32", "f64", "f16" or "bf16". Throws DTypeError with these names.
inline DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    if (name_of(dtype) == text) return dtype;
  }
  throw DTypeError("expected f32, f64, f16 or bf16, got " + text);
}

inline void add_device(CLI::App& app, Device& device) {
  add_parsed(app, "--device", device, "cpu, cuda or cuda:N (default cpu)",
             [](const std::string& t) { return Device::parse(t); });
}

inline void add_algorithm(CLI::App& app, Algorithm& algorithm) {
  add_parsed(app, "--algorithm", algorithm, "automatic (default), direct, depthwise, tensor_core, gemm or reference",
             [](const std::string& t) { return parse_algorithm(t); });
}

inline void add_precision(CLI::App& app, Precision& precision) {
  add_parsed(app, "--precision", precision, "ieee, fp32 (default) or tf32",
             [](const std::string& t) { return parse_precision(t); });
}

inline void add_dtype(CLI::App& app, std::optional<DType>& dtype, const std::string& help) {
  add_parsed(app, "--dtype", dtype, help, [](const std::string& t) { return std::optional<DType>(parse_dtype(t)); });
}

/// A number above 0.
inline CLI::Validator above_zero() {
  return {[](const std::string& text) {
            double value = 0;
            return CLI::detail::lexical_cast(text, value) && value > 0 ? std::string()
                                                                       : "expected a number above 0, got " + text;
          },
          ""};
}

/// Adds --threads, which takes effect while the command line is read.
inline void add_threads(CLI::App& app) {
  app.add_option_function<int>(
         "--threads", [](int count) { set_num_threads(count); }, "CPU threads (default: all cores)")
      ->check(CLI::Range(1, 4096));
}

}  // namespace polyphase::program
