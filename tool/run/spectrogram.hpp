#pragma once
// A picture of sound.

#include <vector>

#include "run/png.hpp"

namespace polyphase::tool {

/// Time from left to right, frequency from 0 at the bottom to rate/2. Brightness is the level, from 90 dB below the loudest
/// point. At most 1600 pixels wide and 512 high. Throws ShapeError if there are no samples.
[[nodiscard]] Picture spectrogram(const std::vector<float>& signal, std::int64_t rate);

}  // namespace polyphase::tool
