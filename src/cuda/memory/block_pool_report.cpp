#include <algorithm>
#include <locale>
#include <sstream>
#include <string_view>
#include <utility>

#include "cuda/memory/block_pool.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {
namespace {

std::string_view name(Block::State state) {
  switch (state) {
    case Block::State::hole:
      return "unmapped";
    case Block::State::moved:
      return "moved";
    case Block::State::used:
      return "live";
    case Block::State::pending:
      return "pending";
    case Block::State::free:
    case Block::State::quick:
      return "free";
  }
  return "";
}

void write(std::ostream& out, const Arena& arena) {
  out << "{\"address\": " << arena.address << ", \"bytes\": " << arena.size << ", \"blocks\": [";
  for (const Block* block = arena.first; block != nullptr; block = block->next) {
    out << (block == arena.first ? "" : ", ") << "{\"address\": " << block->address << ", \"bytes\": " << block->size
        << ", \"state\": \"" << name(block->state) << "\"}";
  }
  out << "]}";
}

void write(std::ostream& out, const PoolLists& lists) {
  out << "{\"stream\": " << lists.key().stream << ", \"graph\": " << lists.key().graph << ", \"kind\": \""
      << (lists.key().large ? "large" : "small") << "\", \"arenas\": [";
  const char* comma = "";
  for (const auto& arena : lists.arenas()) {
    out << std::exchange(comma, ", ");
    write(out, *arena);
  }
  out << "]}";
}

}  // namespace

std::string BlockPool::snapshot() const {
  const std::scoped_lock lock(mutex_);
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << "{\"stats\": {\"live_bytes\": " << stats_.live_bytes << ", \"live_blocks\": " << stats_.live_blocks
      << ", \"cached_bytes\": " << pool_stats_.mapped_bytes - stats_.live_bytes
      << ", \"pending_bytes\": " << pool_stats_.pending_bytes << ", \"mapped_bytes\": " << pool_stats_.mapped_bytes
      << ", \"peak_bytes\": " << stats_.peak_bytes << ", \"peak_mapped_bytes\": " << pool_stats_.peak_mapped_bytes
      << ", \"allocations\": " << stats_.allocations << ", \"growths\": " << pool_stats_.growths
      << ", \"borrowed\": " << pool_stats_.borrowed << ", \"trims\": " << pool_stats_.trims << "}, \"pools\": [";
  const char* comma = "";
  for (const auto& lists : pools_) {
    out << std::exchange(comma, ", ");
    write(out, *lists);
  }
  out << "]}";
  return std::move(out).str();
}

std::vector<LiveBlock> BlockPool::live_blocks(std::uint64_t since) const {
  const std::scoped_lock lock(mutex_);
  std::vector<LiveBlock> live;
  for (const auto& [address, block] : table_) {
    if (block->state == Block::State::used && block->serial > since) live.push_back({address, block->size, block->serial});
  }
  std::sort(live.begin(), live.end(), [](const LiveBlock& a, const LiveBlock& b) { return a.serial < b.serial; });
  return live;
}

}  // namespace polyphase::cuda
