// The standard headers that most sources include, precompiled for the tests and, by clang or without optimization, for the
// library (cpp_pch). None of the project's headers is here, so that a change in one compiles only what includes it. Every
// source still includes what it uses: it must compile with -Db_pch=false. There is no #pragma once: GCC warns of it in a file
// that it precompiles.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>
