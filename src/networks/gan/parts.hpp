#pragma once
// Work on audio that is recorded as concurrent parts.

#include <cstddef>
#include <vector>

#include "device/backend.hpp"

namespace polyphase::networks {

/// of(i) for each of `count` parts, which compute at the same time in a graph that is being recorded.
template <class Of>
auto of_parts(const Tensor& audio, std::size_t count, const Of& of) {
  std::vector<decltype(of(std::size_t{}))> results(count);
  const auto fork = backend_of(audio.device()).make_fork(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto work = [&] { results[i] = of(i); };
    fork ? fork->run(i, work) : work();
  }
  return results;
}

}  // namespace polyphase::networks
