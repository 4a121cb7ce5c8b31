#pragma once
// Synthetic sound for the tests, in this program's namespace.

#include "shared.hpp"
#include "support/sound.hpp"

namespace superres::testing {
using polyphase::testing::noise;
using polyphase::testing::rms;
using polyphase::testing::sine;
using polyphase::testing::write_sound;
}  // namespace superres::testing
