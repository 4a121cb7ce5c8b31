#pragma once
// Checks this library against results that PyTorch computed in float64, kept in safetensors files of four forms:
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

/// What to compute with.
struct Options {
  Device device = Device::cpu();
  Precision precision = Precision::fp32;
  Algorithm algorithm = Algorithm::automatic;
  /// f32 for convolution cases and f64 for traces and generators unless set; cases can also be f16 and bf16.
  std::optional<DType> dtype{};
  /// The file of the weights of a network whose golden file stores none, in any format of load_weights().
  std::string weights{};
};

/// The worst of one case. tolerance.hpp says what the numbers mean.
struct Result {
  std::string name{};   ///< "0007", "first_grad", "audio"
  std::string what{};   ///< "conv_transpose1d (4,16,100) x (16,8,4) S=2 ..."
  std::string worst{};  ///< the tensor with the largest error by its tolerance: "grad_weight"
  double error = 0;
  double tolerance = 0;
  std::string skipped{};  ///< why the algorithm asked for cannot do this case; empty where it was done
  /// The part of its tolerance that the error uses; infinite where that is no number, or where the tolerance is not finite.
  [[nodiscard]] double share() const;
  [[nodiscard]] bool passed() const;  ///< false where either is no number, or where the tolerance allows everything
};

/// Runs every case of the file, calling `report` (may be empty) as each is done. A case that the algorithm asked for cannot do
/// is reported as skipped, and so is a trace or a network in a dtype for which there is no tolerance. Throws FormatError
/// where the file is malformed or of none of these forms.
std::vector<Result> check_file(const std::string& path, const Options& options,
                               const std::function<void(const Result&)>& report = {});

}  // namespace polyphase::golden
