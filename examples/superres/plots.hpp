#pragma once
// Pictures made by gnuplot. The numbers and scripts stay next to the pictures, so that nothing is lost without gnuplot.

#include <span>
#include <string>
#include <vector>

namespace superres {

/// Runs `script`, a file in `folder`, which writes `picture` there. Returns false if gnuplot is not installed; throws Error
/// with gnuplot's exit code if it fails.
bool run_gnuplot(const std::string& folder, const std::string& script, const std::string& picture);

/// One spectrogram of a picture.
struct SpectrogramPanel {
  std::string name;  ///< of its data file
  std::string title;
  std::vector<float> signal;
  int rate = 0;
};

/// Writes spectrograms.gp and a matrix of dB per panel (rows: frequencies, columns: times) into `folder`. Two panels a row, all
/// with the axes of the highest rate and the same colour scale. Throws FormatError.
void write_spectrograms(const std::string& folder, std::span<const SpectrogramPanel> panels);
inline constexpr const char* kSpectrogramScript = "spectrograms.gp";
inline constexpr const char* kSpectrogramPicture = "spectrograms.png";

/// Writes loss.gp into `folder`, which draws a run's log.csv and heldout.csv, copied there. Throws Error.
void write_loss_curve(const std::string& folder, const std::string& log, const std::string& heldout_log);
inline constexpr const char* kLossScript = "loss.gp";
inline constexpr const char* kLossPicture = "loss.png";

}  // namespace superres
