#pragma once
// Checks this library against results that PyTorch computed in float64, kept in safetensors files of four kinds:
//
//   convolution cases   metadata NAME -> {"op": "conv_transpose1d" | "conv1d", "stride": ..., ...}
//                       tensors NAME/x, /weight, /bias (may be absent), /grad_y; expected NAME/y, /grad_x, /grad_weight,
//                       /grad_bias
//   a training trace    metadata net, optimizer, loss, steps and hyper-parameters
//                       tensors init/KEY, x, target; expected first_output, first_grad/KEY, losses, final/KEY
//   a generator         metadata config (HiFi-GAN's); tensors state_dict/KEY, mel; expected audio
//   a network           metadata network, config; tensors weights/KEY (or in a file of their own, Options::weights),
//   input/NAME;
//                       expected output/NAME

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "io/safetensors.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"

namespace polyphase::golden {

/// Device, dtype, algorithm and precision.
struct Options {
  Device device = Device::cpu();
  Precision precision = Precision::fp32;
  Algorithm algorithm = Algorithm::automatic;
  /// f32 for convolution cases and f64 for traces and generators unless set; cases can also be f16 and bf16.
  std::optional<DType> dtype{};
  /// The file with the weights of a network whose golden file has none, in any format of load_weights().
  std::string weights{};
};

/// The result of one case with the largest error. tolerance.hpp explains the numbers.
struct Result {
  std::string name{};   ///< "0007", "first_grad", "audio"
  std::string what{};   ///< "conv_transpose1d (4,16,100) x (16,8,4) S=2 ..."
  std::string worst{};  ///< the tensor that uses the largest share of its tolerance: "grad_weight"
  double error = 0;
  double tolerance = 0;
  std::string skipped{};  ///< why the algorithm cannot compute this case; empty if it did
  /// The error's share of its tolerance; infinite if it is NaN or the tolerance is not finite.
  [[nodiscard]] double share() const;
  [[nodiscard]] bool passed() const;  ///< false if either is NaN, or if the tolerance allows everything
};

/// Runs every case of the file and calls `report` (may be empty) after each. A case that the chosen algorithm cannot compute is
/// reported as skipped; so is a trace or a network in a dtype without a tolerance. Throws FormatError if the file is malformed
/// or of no known kind.
std::vector<Result> check_file(const std::string& path, const Options& options,
                               const std::function<void(const Result&)>& report = {});

}  // namespace polyphase::golden
