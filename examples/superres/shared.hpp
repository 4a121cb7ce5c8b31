#pragma once
// What the examples that train share (examples/training/), under this program's own names.

#include "training/shared.hpp"

namespace superres {
using namespace training;
}
