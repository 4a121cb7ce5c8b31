// The headers of other projects that most tests include, precompiled once for all test programs (tests/meson.build).
#include <doctest/doctest.h>

#include "standard.hpp"
