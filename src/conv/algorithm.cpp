#include "conv/algorithm.hpp"

#include <ostream>
#include <string>

#include "tensor/error.hpp"

namespace polyphase {
namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::automatic,   Algorithm::direct, Algorithm::depthwise,
                                     Algorithm::tensor_core, Algorithm::gemm,   Algorithm::reference};
constexpr Precision kPrecisions[] = {Precision::ieee, Precision::fp32, Precision::tf32};

thread_local Algorithm algorithm_of_thread = Algorithm::automatic;
thread_local Precision precision_of_thread = Precision::fp32;

template <class Enum, std::size_t count>
Enum parse(const Enum (&all)[count], std::string_view name, const char* what) {
  std::string names;
  for (const Enum each : all) {
    if (name_of(each) == name) return each;
    names += (names.empty() ? "" : ", ") + std::string(name_of(each));
  }
  throw Error(concat(what, ": expected one of ", names, "; got '", name, "'"));
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::automatic:
      return "automatic";
    case Algorithm::direct:
      return "direct";
    case Algorithm::depthwise:
      return "depthwise";
    case Algorithm::tensor_core:
      return "tensor_core";
    case Algorithm::gemm:
      return "gemm";
    case Algorithm::reference:
      break;
  }
  return "reference";
}

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::ieee:
      return "ieee";
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      break;
  }
  return "tf32";
}

Algorithm parse_algorithm(std::string_view name) { return parse(kAlgorithms, name, "algorithm"); }
Precision parse_precision(std::string_view name) { return parse(kPrecisions, name, "precision"); }

std::ostream& operator<<(std::ostream& out, Algorithm algorithm) { return out << name_of(algorithm); }
std::ostream& operator<<(std::ostream& out, Precision precision) { return out << name_of(precision); }

Algorithm current_algorithm() { return algorithm_of_thread; }
Precision current_precision() { return precision_of_thread; }

AlgorithmGuard::AlgorithmGuard(Algorithm algorithm) : previous_(algorithm_of_thread) { algorithm_of_thread = algorithm; }
AlgorithmGuard::~AlgorithmGuard() { algorithm_of_thread = previous_; }

PrecisionGuard::PrecisionGuard(Precision precision) : previous_(precision_of_thread) { precision_of_thread = precision; }
PrecisionGuard::~PrecisionGuard() { precision_of_thread = previous_; }

}  // namespace polyphase
