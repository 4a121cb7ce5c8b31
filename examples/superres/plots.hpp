#pragma once
// The picture of a run's curves.

#include <string>

#include "shared.hpp"
#include "training/pictures.hpp"

namespace superres {

/// Writes loss.gp into `folder`, which draws the run's log.csv and heldout.csv, copied there. Throws Error.
void write_loss_curve(const std::string& folder, const RunFolder& run);

}  // namespace superres
