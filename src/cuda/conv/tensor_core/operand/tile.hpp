#pragma once
// The shape of an operand tile in shared memory and of the rows it is made from. Plain data for host and device.

#include <cstdint>

#include "cuda/kernel/fast_divide.cuh"

namespace polyphase::cuda::tensor_core {

/// Element (row, plane, position u) of a tile is element stride*u + plane*plane_step + e0 of a row; rows are `length` apart.
struct Tile {
  std::int64_t length;
  int stride, plane_step;
  int rows, planes, window;
  int items;  // vectors of a part: planes * rows/vector * window
  FastDivide by_plane_window, by_planes;
};

[[nodiscard]] inline Tile make_tile(std::int64_t length, std::int64_t stride, std::int64_t plane_step, int rows, int planes,
                                    int window, int vector) {
  return {length,
          static_cast<int>(stride),
          static_cast<int>(plane_step),
          rows,
          planes,
          window,
          planes * (rows / vector) * window,
          FastDivide(static_cast<std::uint32_t>(planes * window)),
          FastDivide(static_cast<std::uint32_t>(planes))};
}

}  // namespace polyphase::cuda::tensor_core
