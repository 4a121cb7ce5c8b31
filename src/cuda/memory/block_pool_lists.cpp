#include "cuda/memory/block_pool_lists.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace polyphase::cuda {
namespace {

using State = Block::State;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// A piece is returned or moved only as a whole, so it is small compared with what is held: a few stranded pieces are little
/// memory. But many small pieces would be slow, because each costs the driver as much as one to ten kernel launches.
std::size_t piece_size(std::size_t bytes, std::size_t held, std::size_t unit) {
  constexpr std::size_t kPiecesOfAll = 128, mib = 1024 * 1024;
  const std::size_t wanted = std::clamp(std::bit_floor((held + bytes) / kPiecesOfAll), 2 * mib, 64 * mib);
  return std::min(round_up(wanted, unit), bytes);
}

}  // namespace

PoolLists::PoolLists(PoolKey key, MemorySource& source, BlockTable& table, std::size_t reserve_bytes)
    : key_(key), source_(source), table_(table), reserve_bytes_(round_up(reserve_bytes, source.granularity())) {}

PoolLists::~PoolLists() {
  for (const auto& arena : arenas_) {
    unmap_moved(*arena);
    unmap_pieces(*arena, arena->address, arena->address + arena->size);
    source_.release(arena->address, arena->size);
    for (Block* block = arena->first; block != nullptr;) delete std::exchange(block, block->next);
  }
}

Block* PoolLists::take(std::size_t bytes) {
  for (Block** link = &quick_[quick_bin(bytes)]; *link != nullptr; link = &(*link)->next_quick) {
    if ((*link)->size != bytes) continue;
    Block* block = std::exchange(*link, (*link)->next_quick);
    --quick_count_;
    block->state = State::used;
    return block;
  }
  flush_quick();
  const auto found = free_.lower_bound(bytes);
  if (found == free_.end()) return nullptr;
  Block* block = *found;
  table_.emplace(block->address, block);  // first, because it may throw
  free_.erase(found);
  block->state = State::used;
  if (block->size > bytes) free_.insert(split(block, bytes));
  return block;
}

void PoolLists::give(Block* block) noexcept {
  Block*& bin = quick_[quick_bin(block->size)];
  block->state = State::quick;
  block->next_quick = std::exchange(bin, block);
  ++quick_count_;
}

void PoolLists::flush_quick() {
  if (quick_count_ == 0) return;
  for (Block*& bin : quick_) {
    while (bin != nullptr) {
      Block* block = std::exchange(bin, bin->next_quick);
      --quick_count_;
      table_.erase(block->address);
      make_free(block);
    }
  }
}

/// Shrinks `block` to `bytes`; the rest becomes a new free block after it.
Block* PoolLists::split(Block* block, std::size_t bytes) {
  auto* rest = new Block;
  rest->address = block->address + bytes;
  rest->size = block->size - bytes;
  rest->state = State::free;
  rest->arena = block->arena;
  rest->previous = block;
  rest->next = std::exchange(block->next, rest);
  if (rest->next != nullptr) rest->next->previous = rest;
  block->size = bytes;
  return rest;
}

/// Merges the next block into `block`.
void PoolLists::join_next(Block* block) {
  Block* gone = block->next;
  block->size += gone->size;
  block->next = gone->next;
  if (gone->next != nullptr) gone->next->previous = block;
  delete gone;
}

void PoolLists::make_free(Block* block) {
  block->state = State::free;
  if (block->next != nullptr && block->next->state == State::free) {
    free_.erase(block->next);
    join_next(block);
  }
  if (block->previous != nullptr && block->previous->state == State::free) {
    block = block->previous;
    free_.erase(block);
    join_next(block);
  }
  free_.insert(block);
}

/// The hole for which `bytes`, together with the free blocks next to it, need the least new memory.
Block* PoolLists::best_hole(std::size_t bytes, std::size_t& to_map) const {
  Block* best = nullptr;
  for (const auto& arena : arenas_) {
    for (Block* block = arena->first; block != nullptr; block = block->next) {
      if (block->state != State::hole) continue;
      const std::size_t left = block->previous != nullptr && block->previous->state == State::free ? block->previous->size : 0;
      const std::size_t right = block->next != nullptr && block->next->state == State::free ? block->next->size : 0;
      if (left + block->size + right < bytes) continue;
      const std::size_t missing = std::min(round_up(bytes - left, source_.granularity()), block->size);
      if (best == nullptr || missing < to_map) {
        best = block;
        to_map = missing;
      }
    }
  }
  return best;
}

Block* PoolLists::new_arena(std::size_t bytes) {
  auto arena = std::make_unique<Arena>();
  arena->size = std::max(reserve_bytes_, round_up(bytes, source_.granularity()));
  arena->lists = this;
  auto block = std::make_unique<Block>();
  arenas_.reserve(arenas_.size() + 1);
  arena->address = source_.reserve(arena->size);
  if (arena->address == 0) return nullptr;
  block->address = arena->address;
  block->size = arena->size;
  block->arena = arena.get();
  arena->first = block.release();
  arenas_.push_back(std::move(arena));
  return arenas_.back()->first;
}

std::optional<std::size_t> PoolLists::grow(std::size_t bytes, std::size_t budget, PoolLists* other) {
  flush_quick();
  if (other != nullptr) other->flush_quick();
  std::size_t wanted = 0;
  Block* hole = best_hole(bytes, wanted);
  if (hole == nullptr) {
    wanted = round_up(bytes, source_.granularity());
    hole = new_arena(bytes);
  }
  if (hole == nullptr) return std::nullopt;
  const std::size_t moved = move_into(hole, wanted, other);
  const std::size_t to_map = wanted - moved;
  const bool enough = to_map <= budget && map_pieces(*hole->arena, hole->address + moved, to_map);
  const std::size_t filled = enough ? wanted : moved;
  if (filled > 0) {
    if (hole->size > filled) split(hole, filled)->state = State::hole;
    make_free(hole);
  }
  if (enough) return to_map;
  drop_empty_arenas();
  return std::nullopt;
}

/// Fills the beginning of a hole, at most `bytes`, with free memory in whole pieces. Returns the number of bytes.
std::size_t PoolLists::move_into(Block* hole, std::size_t bytes, PoolLists* other) {
  // Blocks next to the hole serve the request in place. A pattern of requests that moves memory again and again is better
  // served by growing, so the amount of moving is limited: the host takes longer to move memory than a kernel to use it.
  constexpr std::size_t kMovesOfEachByte = 3;
  std::size_t filled = 0;
  for (PoolLists* lists : {this, other}) {
    if (lists == nullptr) continue;
    const std::vector<Block*> blocks(lists->free_.begin(), lists->free_.end());
    for (Block* block : blocks) {
      if (filled == bytes || moved_bytes_ + filled >= kMovesOfEachByte * mapped_bytes_) break;
      if (block == hole->previous || block == hole->next) continue;
      filled += lists->move_from(block, *hole->arena, hole->address + filled, bytes - filled);
    }
  }
  moved_bytes_ += filled;
  mapped_bytes_ += filled;
  return filled;
}

/// Moves the first row of whole pieces in a free block, at most `most` bytes, to `to`. Returns the number of bytes.
std::size_t PoolLists::move_from(Block* block, Arena& arena, Address to, std::size_t most) {
  auto& pieces = block->arena->pieces;
  const auto first = pieces.lower_bound(block->address);
  const Address block_end = block->address + block->size, begin = first == pieces.end() ? block_end : first->first;
  Address end = begin;
  for (auto piece = first; piece != pieces.end() && piece->first == end; piece = pieces.erase(piece)) {
    const auto [from, size] = *piece;
    if (from + size > block_end || end - begin + size > most) break;
    arena.pieces.emplace(to + (end - begin), size);
    block->arena->moved.emplace(from, size);
    if (!source_.move(from, to + (end - begin), size)) {
      arena.pieces.erase(to + (end - begin));
      block->arena->moved.erase(from);
      break;
    }
    end += size;
  }
  if (end == begin) return 0;
  mapped_bytes_ -= end - begin;
  Block* left = carve(block, begin, end);
  left->state = State::moved;
  join_alike(left);
  return end - begin;
}

bool PoolLists::map_pieces(Arena& arena, Address begin, std::size_t bytes) {
  // A request that cannot succeed must not take what is left of the device, not even for a moment: others need it.
  if (bytes > source_.available()) return false;
  const Address end = begin + bytes;
  for (Address at = begin; at < end;) {
    const std::size_t piece = piece_size(end - at, mapped_bytes_, source_.granularity());
    if (!source_.map(at, piece)) {
      unmap_pieces(arena, begin, at);
      return false;
    }
    arena.pieces.emplace(at, piece);
    mapped_bytes_ += piece;
    at += piece;
  }
  return true;
}

void PoolLists::unmap_pieces(Arena& arena, Address begin, Address end) noexcept {
  const auto first = arena.pieces.lower_bound(begin), last = arena.pieces.lower_bound(end);
  for (auto piece = first; piece != last; ++piece) {
    source_.unmap(piece->first, piece->second);
    mapped_bytes_ -= piece->second;
  }
  arena.pieces.erase(first, last);
}

void PoolLists::unmap_moved(Arena& arena) noexcept {
  for (const auto& [address, bytes] : arena.moved) source_.unmap(address, bytes);
  arena.moved.clear();
}

/// Cuts [begin, end) out of a free block; the rest at either end stays free. The piece is in no list.
Block* PoolLists::carve(Block* block, Address begin, Address end) {
  free_.erase(block);
  if (end < block->address + block->size) free_.insert(split(block, end - block->address));
  if (block->address == begin) return block;
  Block* piece = split(block, begin - block->address);
  free_.insert(block);
  return piece;
}

/// Merges a block with neighbours of the same state that are in no list. Returns the merged block.
Block* PoolLists::join_alike(Block* block) {
  if (block->next != nullptr && block->next->state == block->state) join_next(block);
  if (block->previous == nullptr || block->previous->state != block->state) return block;
  block = block->previous;
  join_next(block);
  return block;
}

/// Unmaps the whole pieces inside a free block; the rest at either end stays free. Returns the number of bytes.
std::size_t PoolLists::punch(Block* block) {
  auto& pieces = block->arena->pieces;
  const Address block_end = block->address + block->size;
  auto piece = pieces.lower_bound(block->address);
  if (piece == pieces.end() || piece->first + piece->second > block_end) return 0;
  const Address begin = piece->first;
  Address end = begin;
  while (piece != pieces.end() && piece->first == end && end + piece->second <= block_end) {
    end += piece->second;
    ++piece;
  }
  block = carve(block, begin, end);
  unmap_pieces(*block->arena, begin, end);
  block->state = State::hole;
  join_alike(block);
  return end - begin;
}

std::size_t PoolLists::trim() {
  flush_quick();
  for (const auto& arena : arenas_) {
    unmap_moved(*arena);
    for (Block* block = arena->first; block != nullptr; block = block->next) {
      if (block->state != State::moved) continue;
      block->state = State::hole;
      block = join_alike(block);
    }
  }
  const std::vector<Block*> blocks(free_.begin(), free_.end());
  std::size_t bytes = 0;
  for (Block* block : blocks) bytes += punch(block);
  drop_empty_arenas();
  return bytes;
}

void PoolLists::drop_empty_arenas() {
  std::erase_if(arenas_, [this](const std::unique_ptr<Arena>& arena) {
    if (arena->first->state != State::hole || arena->first->next != nullptr) return false;
    source_.release(arena->address, arena->size);
    delete arena->first;
    return true;
  });
}

}  // namespace polyphase::cuda
