#pragma once
// Options that several programs share, so that names and errors are the same.

#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "cpu/threads.hpp"
#include "program/arguments.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/error.hpp"

namespace polyphase::program {

/// An option whose text `parse` turns into `value`; if `parse` throws Error, the usage is wrong.
template <class Value, class Parse>
Option add_parsed(Arguments& arguments, const std::string& name, Value& value, const std::string& help, const Parse& parse) {
  return arguments.add_function(
      name, [&value, parse](const std::string& text) { value = parse(text); }, help);
}

/// "f32", "f64", "f16" or "bf16". Throws DTypeError with these names.
inline DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    if (name_of(dtype) == text) return dtype;
  }
  throw DTypeError("expected f32, f64, f16 or bf16, got " + text);
}

inline void add_device(Arguments& arguments, Device& device) {
  add_parsed(arguments, "--device", device, "cpu, cuda or cuda:N (default cpu)",
             [](const std::string& t) { return Device::parse(t); });
}

inline void add_algorithm(Arguments& arguments, Algorithm& algorithm) {
  add_parsed(arguments, "--algorithm", algorithm, "automatic (default), direct, depthwise, tensor_core, gemm or reference",
             [](const std::string& t) { return parse_algorithm(t); });
}

inline void add_precision(Arguments& arguments, Precision& precision) {
  add_parsed(arguments, "--precision", precision, "ieee, fp32 (default) or tf32",
             [](const std::string& t) { return parse_precision(t); });
}

inline void add_dtype(Arguments& arguments, std::optional<DType>& dtype, const std::string& help) {
  add_parsed(arguments, "--dtype", dtype, help, [](const std::string& t) { return std::optional<DType>(parse_dtype(t)); });
}

/// Adds --threads, which takes effect while the command line is read.
inline void add_threads(Arguments& arguments) {
  arguments
      .add_number_function(
          "--threads", [](int count) { set_num_threads(count); }, "CPU threads (default: all cores)")
      .in_range(1, 4096);
}

}  // namespace polyphase::program
