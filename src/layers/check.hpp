#pragma once
// Checks shared by the constructors of layers. Not for users.

#include <cstdint>

#include "tensor/dtype.hpp"
#include "tensor/error.hpp"

namespace polyphase::layers {

/// Throws ShapeError "LAYER: expected WHAT >= MINIMUM, got VALUE".
inline void require_at_least(const char* layer, const char* what, std::int64_t value, std::int64_t minimum) {
  require<ShapeError>(value >= minimum, layer, ": expected ", what, " >= ", minimum, ", got ", value);
}

/// Throws ShapeError naming both numbers unless `count` is a multiple of `divisor`, which is at least 1.
inline void require_divisible(const char* layer, const char* what, std::int64_t count, const char* divisor_name,
                              std::int64_t divisor) {
  require<ShapeError>(count % divisor == 0, layer, ": expected ", what, " divisible by ", divisor_name, ", got ", what, "=",
                      count, " and ", divisor_name, "=", divisor);
}

/// Throws DTypeError "LAYER: expected a floating-point dtype, got DTYPE"; parameters of other dtypes cannot be learned.
inline void require_floating(const char* layer, DType dtype) {
  require<DTypeError>(is_floating_point(dtype), layer, ": expected a floating-point dtype, got ", dtype);
}

}  // namespace polyphase::layers
