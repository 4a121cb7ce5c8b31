#include "cuda/block_pool_lists.hpp"

#include <algorithm>
#include <utility>

namespace polyphase::cuda {
namespace {

using State = Block::State;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// Memory is mapped in few large pieces where much is asked for (a piece costs the driver about as much as a kernel launch or
/// ten), in small ones otherwise: a piece goes back only whole.
std::size_t piece_size(std::size_t bytes, std::size_t unit) {
  constexpr std::size_t mib = 1024 * 1024;
  const std::size_t wanted = bytes >= 1024 * mib ? 64 * mib : bytes >= 32 * mib ? 16 * mib : 2 * mib;
  return std::min(round_up(wanted, unit), bytes);
}

}  // namespace

PoolLists::PoolLists(PoolKey key, MemorySource& source, BlockTable& table, std::size_t reserve_bytes)
    : key_(key), source_(source), table_(table), reserve_bytes_(round_up(reserve_bytes, source.granularity())) {}

PoolLists::~PoolLists() {
  for (const auto& arena : arenas_) {
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
  table_.emplace(block->address, block);  // first, as it may throw
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

/// Cuts `block` to `bytes`; the rest is a new block of state free after it.
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

/// Takes the next block's room into `block`.
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

/// The hole where `bytes` of room, with the free blocks beside it, takes the least new memory.
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

std::size_t PoolLists::grow(std::size_t bytes, std::size_t budget) {
  flush_quick();
  std::size_t to_map = 0;
  Block* hole = best_hole(bytes, to_map);
  if (hole == nullptr) to_map = round_up(bytes, source_.granularity());
  if (to_map > budget) return 0;
  if (hole == nullptr) hole = new_arena(bytes);
  if (hole == nullptr || !map_pieces(*hole->arena, hole->address, to_map)) {
    drop_empty_arenas();
    return 0;
  }
  if (hole->size > to_map) split(hole, to_map)->state = State::hole;
  make_free(hole);
  return to_map;
}

bool PoolLists::map_pieces(Arena& arena, Address begin, std::size_t bytes) {
  const Address end = begin + bytes;
  for (Address at = begin; at < end;) {
    const std::size_t piece = piece_size(end - at, source_.granularity());
    if (!source_.map(at, piece)) {
      unmap_pieces(arena, begin, at);
      return false;
    }
    arena.pieces.emplace(at, piece);
    at += piece;
  }
  return true;
}

void PoolLists::unmap_pieces(Arena& arena, Address begin, Address end) noexcept {
  const auto first = arena.pieces.lower_bound(begin), last = arena.pieces.lower_bound(end);
  for (auto piece = first; piece != last; ++piece) source_.unmap(piece->first, piece->second);
  arena.pieces.erase(first, last);
}

/// Unmaps the whole pieces inside a free block; what is left of it at either end stays free. Returns the bytes.
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
  free_.erase(block);
  if (end < block_end) free_.insert(split(block, end - block->address));
  if (block->address < begin) {
    Block* whole = split(block, begin - block->address);
    free_.insert(block);
    block = whole;
  }
  unmap_pieces(*block->arena, begin, end);
  block->state = State::hole;
  if (block->next != nullptr && block->next->state == State::hole) join_next(block);
  if (block->previous != nullptr && block->previous->state == State::hole) join_next(block->previous);
  return end - begin;
}

std::size_t PoolLists::trim() {
  flush_quick();
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
