#pragma once
// The network: one definition for training, evaluation and use.
//
//   low-rate x ─┬─ windowed-sinc interpolation ────────────────────────────────────────┬─ + ── y
//               └─ conv ─ residual blocks ─ (ConvTranspose1d, stride 2)* ─ block ─ conv ┘
//
// The interpolation is correct below the low rate's Nyquist frequency; the network adds what is missing above it. Each
// ConvTranspose1d stage doubles the rate, so a factor of 2, 4 or 8 has 1, 2 or 3 of them.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/module.hpp"

namespace superres {

namespace pp = polyphase;

/// All options that determine the network's shape; every checkpoint has them.
struct ModelOptions {
  int factor = 4;          ///< 2, 4 or 8
  int rate = 16000;        ///< of the output, in Hz
  bool causal = false;     ///< an output sample depends on no later low-rate sample: delay 0, padding on the left only
  int channels = 64;       ///< at the low rate
  int high_channels = 32;  ///< at the output's rate
  int blocks = 3;          ///< residual blocks at the low rate, dilations 1, 3, 9, ...
  int kernel = 7;          ///< of the blocks, odd

  [[nodiscard]] int low_rate() const { return rate / factor; }
};

/// Throws Error with the option, its range and its value.
void validate(const ModelOptions& options);
/// Options as text for a checkpoint, and back. from_texts throws Error with the name of an entry that is missing or no number.
[[nodiscard]] std::map<std::string, std::string> to_texts(const ModelOptions& options);
[[nodiscard]] ModelOptions from_texts(const std::map<std::string, std::string>& texts);

/// Names and shapes of the state_dict of a network with these options, computed without a network.
[[nodiscard]] std::vector<std::pair<std::string, pp::Shape>> state_shapes(const ModelOptions& options);
/// The options in a checkpoint's texts. Throws Error like from_texts, and if the checkpoint's tensors are not those of such a
/// network: the texts alone never decide how much memory is allocated.
[[nodiscard]] ModelOptions options_of(const pp::Checkpoint& checkpoint);

/// Low-rate samples before and after its own position that affect an output sample.
struct Context {
  std::int64_t left = 0;
  std::int64_t right = 0;
};

/// x + conv(act(conv(x))), the first convolution dilated.
class ResidualBlock : public pp::Module {
 public:
  ResidualBlock(std::int64_t channels, std::int64_t kernel, std::int64_t dilation, bool causal);
  void visit(pp::Visitor& visitor) override;
  [[nodiscard]] pp::Tensor forward(const pp::Tensor& x) override;
  /// Samples to the left and right, at the output's rate, that affect an output.
  [[nodiscard]] Context context() const;

 private:
  pp::Conv1d dilated_;
  pp::Conv1d plain_;
};

class UpsamplingNetwork : public pp::Module {
 public:
  /// Weights from the default generator. Throws as validate() does.
  explicit UpsamplingNetwork(const ModelOptions& options);

  /// (N, 1, L) -> (N, 1, L*factor).
  [[nodiscard]] pp::Tensor forward(const pp::Tensor& low) override;
  void visit(pp::Visitor& visitor) override;
  [[nodiscard]] const ModelOptions& options() const { return options_; }
  /// The context of the whole network: outputs this far from a cut are unchanged.
  [[nodiscard]] Context context() const;

 private:
  ModelOptions options_;
  pp::ConvTranspose1d base_;  // the interpolation: fixed; causal: trained
  pp::Conv1d first_;
  std::vector<ResidualBlock> blocks_;
  std::vector<pp::ConvTranspose1d> stages_;
  ResidualBlock last_block_;
  pp::Conv1d last_;
};

}  // namespace superres
