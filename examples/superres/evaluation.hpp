#pragma once
// Compares the network with plain interpolation, clip by clip.

#include <string>
#include <vector>

#include "metrics.hpp"
#include "model.hpp"
#include "shared.hpp"
#include "training/clip.hpp"

namespace superres {

/// One clip's scores by each method.
struct ClipScores {
  std::string name;
  double seconds = 0;
  Scores linear;
  Scores sinc;
  Scores network;
};

/// Scores every clip. Each must have at least kLsdWindow samples.
[[nodiscard]] std::vector<ClipScores> evaluate(UpsamplingNetwork& network, const ClipSet& clips);

/// The means over clips, under the name "mean"; seconds is their sum.
[[nodiscard]] ClipScores mean_of(const std::vector<ClipScores>& scores);

/// How far the network's log-spectral distance is below windowed sinc's, as a share: 0.25 is 25 %.
[[nodiscard]] double lsd_gain(const ClipScores& scores);

/// One number to choose checkpoints by; less is better. It is the network's log-spectral distance as a share of sinc's, plus 1
/// for each dB of SNR that it loses against sinc beyond kAllowedLoss.
[[nodiscard]] double selection_score(const ClipScores& scores);
inline constexpr double kAllowedLoss = 0.2;  ///< dB

/// "log-spectral distance 1.08, 76 % below windowed sinc (4.53); SNR 16.4 dB, 0.3 dB above (16.1)"
[[nodiscard]] std::string verdict(const ClipScores& mean);
/// The table of all clips and their mean, ready to print.
[[nodiscard]] std::string table_of(const std::vector<ClipScores>& scores);

}  // namespace superres
