#pragma once
// The gradients of a list of parameters in a few large blocks of memory. Internal.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.hpp"

namespace polyphase::distributed {

/// The place of one parameter in its bucket.
struct BucketSlot {
  std::size_t parameter = 0;  ///< position in the list
  std::int64_t offset = 0;    ///< in elements
  std::int64_t numel = 0;
};

struct Bucket {
  Tensor buffer;  ///< (n), n a multiple of world; zero between the slots
  std::vector<BucketSlot> slots{};
};

/// Where every parameter is, and a view of it in its parameter's shape.
struct BucketPlace {
  std::size_t bucket = 0;
  std::size_t slot = 0;
  Tensor view{};
};

/// The parameters in reverse order, which is about the order in which a backward pass finishes them, in buckets of one dtype:
/// at most `first_bytes` in the first, so that sending begins early, and `bytes` in the others, but at least one parameter.
/// Slots begin at multiples of 256 bytes. The layout depends on nothing else, so that every run sums in the same order.
[[nodiscard]] std::vector<Bucket> make_buckets(std::span<const Tensor> parameters, std::int64_t first_bytes, std::int64_t bytes,
                                               int world);
/// By position in the list.
[[nodiscard]] std::vector<BucketPlace> places_in(std::span<const Bucket> buckets, std::span<const Tensor> parameters);

}  // namespace polyphase::distributed
