#include "distributed/data_parallel_buckets.hpp"

namespace polyphase::distributed {
namespace {

std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// Elements from one slot to the next.
std::int64_t pitch(const Tensor& parameter) {
  constexpr std::int64_t kAlignment = 256;
  return rounded_up(parameter.numel(), kAlignment / static_cast<std::int64_t>(size_of(parameter.dtype())));
}

}  // namespace

std::vector<Bucket> make_buckets(std::span<const Tensor> parameters, std::int64_t first_bytes, std::int64_t bytes, int world) {
  std::vector<Bucket> buckets;
  std::vector<std::int64_t> sizes;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const Tensor& parameter = parameters[i];
    const auto size = static_cast<std::int64_t>(size_of(parameter.dtype()));
    const std::int64_t most = buckets.size() <= 1 ? first_bytes : bytes;
    const bool fits = !buckets.empty() && parameters[buckets.back().slots.front().parameter].dtype() == parameter.dtype() &&
                      (sizes.back() + pitch(parameter)) * size <= most;
    if (!fits) buckets.emplace_back(), sizes.push_back(0);
    buckets.back().slots.push_back({.parameter = i, .offset = sizes.back(), .numel = parameter.numel()});
    sizes.back() += pitch(parameter);
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Tensor& like = parameters[buckets[b].slots.front().parameter];
    buckets[b].buffer = Tensor::zeros({rounded_up(sizes[b], world)}, {.dtype = like.dtype(), .device = like.device()});
  }
  return buckets;
}

std::vector<BucketPlace> places_in(std::span<const Bucket> buckets, std::span<const Tensor> parameters) {
  std::vector<BucketPlace> places(parameters.size());
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (std::size_t s = 0; s < buckets[b].slots.size(); ++s) {
      const BucketSlot& slot = buckets[b].slots[s];
      places[slot.parameter] = {b, s,
                                buckets[b].buffer.narrow(0, slot.offset, slot.numel).view(parameters[slot.parameter].shape())};
    }
  }
  return places;
}

}  // namespace polyphase::distributed
