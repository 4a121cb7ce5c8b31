#pragma once
// Parts of a recorded graph that run concurrently (tensor/tensor_backend.hpp, BackendFork).

#include <cstddef>
#include <memory>

#include "tensor/tensor_backend.hpp"

namespace polyphase::cuda {

/// Part 0 is recorded on the current stream, every other part on a stream that the calling thread keeps for it and uses for
/// nothing else. Such a stream always begins after all work of the current one, so that memory which was freed on it is safe to
/// use again. A fork inside a part has streams of its own. Nothing outside of capture(), where the host issues launches more
/// slowly than small parts run.
[[nodiscard]] std::unique_ptr<BackendFork> make_fork(int device, std::size_t parts);
/// Whether the calling thread is inside BackendFork::run().
[[nodiscard]] bool is_in_part() noexcept;

}  // namespace polyphase::cuda
