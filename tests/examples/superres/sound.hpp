#pragma once
// What the examples' tests share, under this program's names.

#include "../training/sound.hpp"

namespace superres::testing {
using namespace training::testing;
}
