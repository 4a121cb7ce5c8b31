#pragma once
// Counter-based random numbers (Philox 4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// Element i of a draw depends only on the seed, the generator's offset at the draw and i, never on the thread count or the
// device.

#include <array>
#include <cstdint>

namespace polyphase {

/// The whole state of a generator: if it is saved and restored, the same numbers follow.
struct GeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< blocks of four 32-bit words used so far
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// The generator itself: four random words for a 128-bit counter under a 64-bit key, low words first.
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(const std::array<std::uint32_t, 4>& counter,
                                                      const std::array<std::uint32_t, 2>& key);
/// Four random words of block `counter` under `key`; the counter's upper 64 bits are 0.
[[nodiscard]] std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter);

/// A stream of random numbers. Not thread safe; give each thread its own.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0) : state_{seed, 0} {}
  [[nodiscard]] GeneratorState state() const { return state_; }
  void set_state(GeneratorState state) { state_ = state; }
  void seed(std::uint64_t seed) { state_ = {seed, 0}; }
  /// Takes `count` blocks: returns the state to draw them from and advances past them.
  GeneratorState take(std::uint64_t blocks);
  /// One integer uniform in [0, bound), without modulo bias; bound >= 1. Takes at least one block.
  [[nodiscard]] std::int64_t integer(std::int64_t bound);
  /// One double uniform in [0, 1).
  [[nodiscard]] double uniform();

 private:
  GeneratorState state_;
};

/// The calling thread's generator: seeded with 0 unless manual_seed or a GeneratorGuard says otherwise.
[[nodiscard]] Generator& default_generator();
/// Seeds the calling thread's generator.
void manual_seed(std::uint64_t seed);

/// Makes `generator` the calling thread's default until the end of the scope; it must outlive the guard.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(Generator& generator);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  Generator* previous_;
};

}  // namespace polyphase
