#pragma once
// Pictures made by gnuplot. The numbers and scripts stay next to the pictures, so that nothing is lost without gnuplot.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "training/run_folder.hpp"

namespace training {

/// Runs `script`, a file in `folder`, which writes `picture` there. Returns false where gnuplot is not installed; throws Error
/// with gnuplot's exit code where it fails.
bool run_gnuplot(const std::string& folder, const std::string& script, const std::string& picture);

/// One spectrogram of a picture.
struct SpectrogramPanel {
  std::string name;  ///< of its data file
  std::string title;
  std::vector<float> signal;
  int rate = 0;
};

/// Writes spectrograms.gp and a matrix of dB per panel (rows: frequencies, columns: times) into `folder`; two panels a row, all
/// with the axes of the highest rate and one colour scale. Throws FormatError.
void write_spectrograms(const std::string& folder, std::span<const SpectrogramPanel> panels);
inline constexpr const char* kSpectrogramScript = "spectrograms.gp";
inline constexpr const char* kSpectrogramPicture = "spectrograms.png";

inline constexpr const char* kLossScript = "loss.gp";
inline constexpr const char* kLossPicture = "loss.png";

/// The first lines of a script that draws `picture`, of this size in pixels.
[[nodiscard]] std::string terminal(int width, int height, const std::string& picture);
/// Writes a text file, whole or not at all. Throws FormatError.
void write_text(const std::string& path, const std::string& text);
/// Copies a run's logs to a folder, as log.csv and heldout.csv, for a script there. Throws Error.
void copy_logs(const RunFolder& run, const std::string& folder);
[[nodiscard]] std::int64_t line_count(const std::string& path);

}  // namespace training
