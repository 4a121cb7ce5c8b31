#include "tensor/random.hpp"

#include "tensor/error.hpp"
#include "tensor/philox.hpp"

namespace polyphase {
namespace {

struct ThreadGenerator {
  Generator own;
  Generator* current = &own;
};

ThreadGenerator& thread_generator() {
  thread_local ThreadGenerator generator;
  return generator;
}

constexpr std::uint64_t two_words(const std::array<std::uint32_t, 4>& block) {
  return block[0] | static_cast<std::uint64_t>(block[1]) << 32;
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32(const std::array<std::uint32_t, 4>& counter, const std::array<std::uint32_t, 2>& key) {
  const PhiloxWords words = philox_rounds({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return {words.word[0], words.word[1], words.word[2], words.word[3]};
}

std::array<std::uint32_t, 4> philox4x32(std::uint64_t key, std::uint64_t counter) {
  return philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
                    {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
}

GeneratorState Generator::take(std::uint64_t blocks) {
  const GeneratorState start = state_;
  state_.offset += blocks;
  return start;
}

std::int64_t Generator::integer(std::int64_t bound) {
  require<ShapeError>(bound >= 1, "integer: expected a bound of at least 1, got ", bound);
  const auto range = static_cast<std::uint64_t>(bound);
  const std::uint64_t surplus = (0 - range) % range;  // 2^64 mod range: so many values are rejected, the rest divides evenly
  for (;;) {
    const GeneratorState at = take(1);
    const std::uint64_t draw = two_words(philox4x32(at.seed, at.offset));
    if (draw >= surplus) return static_cast<std::int64_t>(draw % range);
  }
}

double Generator::uniform() {
  const GeneratorState at = take(1);
  return static_cast<double>(two_words(philox4x32(at.seed, at.offset)) >> 11) * 0x1p-53;
}

Generator& default_generator() { return *thread_generator().current; }

void manual_seed(std::uint64_t seed) { default_generator().seed(seed); }

GeneratorGuard::GeneratorGuard(Generator& generator) : previous_(thread_generator().current) {
  thread_generator().current = &generator;
}

GeneratorGuard::~GeneratorGuard() { thread_generator().current = previous_; }

}  // namespace polyphase
