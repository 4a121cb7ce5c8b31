#pragma once
// How work on lists of tensors is shared between threads. Internal to the library.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {

/// Calls part(tensor, first element, count) for parts that together cover every element once, shared between threads as one
/// long row; `sizes` are the tensors' numbers of elements.
template <class Part>
void for_all_elements(const std::vector<std::int64_t>& sizes, const Part& part) {
  std::vector<std::int64_t> ends;
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) ends.push_back(total += size);
  parallel_for(total, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    auto i = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
    for (; begin < end; ++i) {
      const std::int64_t first = ends[i] - sizes[i];
      const std::int64_t stop = std::min(end, ends[i]);
      if (stop > begin) part(i, begin - first, stop - begin);
      begin = std::max(begin, stop);
    }
  });
}

}  // namespace polyphase::cpu
