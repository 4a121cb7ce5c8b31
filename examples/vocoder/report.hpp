#pragma once
// The files of a vocoder for eye and ear.

#include <string>

#include "evaluation.hpp"
#include "shared.hpp"
#include "training/run_folder.hpp"

namespace vocoder {

/// Writes a clip as it is and as the vocoder makes it, NAME.original.wav and NAME.vocoder.wav, and the spectrograms' script and
/// data to `folder`. Throws FormatError.
void write_clip(const std::string& folder, const Vocoder& vocoder, const Clip& clip, int rate);
/// Writes loss.gp, which draws the run's log.csv and heldout.csv, copied to `folder`. Throws Error.
void write_loss_curve(const std::string& folder, const RunFolder& run);
/// Draws what the two left in `folder`, and says where it is, or that gnuplot is not installed.
void draw(const std::string& folder, bool has_curve);

}  // namespace vocoder
