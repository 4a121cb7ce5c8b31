#include "conv/workspace.hpp"

#include <atomic>

namespace polyphase {
namespace {

std::atomic<std::size_t> limit = std::size_t{256} << 20;

}  // namespace

void set_conv_workspace_limit(std::size_t bytes) { limit = bytes; }
std::size_t conv_workspace_limit() { return limit; }

}  // namespace polyphase
