#pragma once
// The blocks of one stream: best fit with splitting and merging, in address space that memory is mapped into on demand. No
// locks, events or statistics; block_pool.hpp has those. Internal.
//
// Address space is reserved in arenas far larger than the memory they hold. An arena is a row of blocks:
//
//   | used | free | used | quick | hole ........................ |
//
// A hole has no memory. Growth maps memory into the hole that needs the least of it and merges it with the free blocks next to
// it. It first moves free memory of the same stream, by changing its address alone, then maps new memory. Trimming turns free
// blocks back into holes. So any request succeeds while enough memory is free anywhere: nothing is stranded.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cuda/memory/memory_source.hpp"

namespace polyphase::cuda {

struct Arena;
class PoolLists;

struct Block {
  enum class State : unsigned char {
    hole,     ///< address space without memory
    moved,    ///< its memory belongs to another block; until a trim, earlier work may still use it from here
    free,     ///< in the size-ordered list
    quick,    ///< free, not yet merged with its neighbours: waits for a request of exactly its size
    used,     ///< in use
    pending,  ///< freed, waits for other streams
  };
  Address address = 0;
  std::size_t size = 0;
  State state = State::hole;
  Arena* arena = nullptr;
  Block* previous = nullptr;  ///< neighbours by address
  Block* next = nullptr;
  Block* next_quick = nullptr;
  StreamId user = 0;              ///< the stream it was allocated on
  std::uint64_t serial = 0;       ///< counts allocations; names the block in a leak report
  std::vector<StreamId> streams;  ///< others that use it
  std::vector<EventId> events;    ///< of a pending block
};

struct Arena {
  Address address = 0;
  std::size_t size = 0;
  PoolLists* lists = nullptr;
  Block* first = nullptr;
  std::map<Address, std::size_t> pieces;  ///< the result of single calls of MemorySource::map
  std::map<Address, std::size_t> moved;   ///< and their address before they were moved
};

/// Blocks that hold memory and are not in a free list, by address.
using BlockTable = std::unordered_map<Address, Block*>;

struct PoolKey {
  std::uint64_t graph = 0;  ///< 0, or the captured graph that the memory is private to
  StreamId stream = 0;
  bool large = false;
  friend bool operator==(const PoolKey&, const PoolKey&) = default;
};

class PoolLists {
 public:
  /// `table` is shared by all lists of a pool. New arenas reserve `reserve_bytes` of address space, or more for larger
  /// requests.
  PoolLists(PoolKey key, MemorySource& source, BlockTable& table, std::size_t reserve_bytes);
  ~PoolLists();
  PoolLists(const PoolLists&) = delete;
  PoolLists& operator=(const PoolLists&) = delete;

  [[nodiscard]] const PoolKey& key() const { return key_; }
  /// A free block of exactly `bytes` (a multiple of kBlockUnit), split off the smallest one that fits; null if none fits.
  [[nodiscard]] Block* take(std::size_t bytes);
  /// Makes a used or pending block free.
  void give(Block* block) noexcept;
  /// Makes take(bytes) succeed, by moving free memory of these lists and of `other` (of the same stream; or null) and mapping
  /// at most `budget` bytes. Returns the bytes mapped; nothing if it is not possible.
  [[nodiscard]] std::optional<std::size_t> grow(std::size_t bytes, std::size_t budget, PoolLists* other);
  /// Unmaps all memory that no block uses; all work of the stream must be done. Returns the number of bytes.
  std::size_t trim();
  [[nodiscard]] const std::vector<std::unique_ptr<Arena>>& arenas() const { return arenas_; }

  static constexpr std::size_t kBlockUnit = 512;

 private:
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->address < b->address;
    }
    bool operator()(const Block* a, std::size_t size) const { return a->size < size; }
    bool operator()(std::size_t size, const Block* b) const { return size < b->size; }
  };
  static constexpr std::size_t kQuickBins = 128;
  [[nodiscard]] static std::size_t quick_bin(std::size_t bytes) {
    return (bytes / kBlockUnit * std::uint64_t{0x9E3779B97F4A7C15}) >> 57U;
  }

  void flush_quick();
  Block* split(Block* block, std::size_t bytes);
  void join_next(Block* block);
  void make_free(Block* block);
  [[nodiscard]] Block* best_hole(std::size_t bytes, std::size_t& to_map) const;
  [[nodiscard]] Block* new_arena(std::size_t bytes);
  [[nodiscard]] bool map_pieces(Arena& arena, Address begin, std::size_t bytes);
  [[nodiscard]] std::size_t move_into(Block* hole, std::size_t bytes, PoolLists* other);
  [[nodiscard]] std::size_t move_from(Block* block, Arena& arena, Address to, std::size_t most);
  void unmap_pieces(Arena& arena, Address begin, Address end) noexcept;
  void unmap_moved(Arena& arena) noexcept;
  [[nodiscard]] Block* carve(Block* block, Address begin, Address end);
  Block* join_alike(Block* block);
  std::size_t punch(Block* block);
  void drop_empty_arenas();

  const PoolKey key_;
  MemorySource& source_;
  BlockTable& table_;
  const std::size_t reserve_bytes_;
  std::array<Block*, kQuickBins> quick_{};
  std::size_t quick_count_ = 0;
  std::set<Block*, BySize> free_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::size_t mapped_bytes_ = 0, moved_bytes_ = 0;  // held now; moved in total
};

}  // namespace polyphase::cuda
