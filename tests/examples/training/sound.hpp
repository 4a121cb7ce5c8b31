#pragma once
// Sound made up for the tests, under this program's names.

#include "support/sound.hpp"
#include "training/shared.hpp"

namespace training::testing {
using polyphase::testing::noise;
using polyphase::testing::rms;
using polyphase::testing::sine;
using polyphase::testing::write_sound;
}  // namespace training::testing
