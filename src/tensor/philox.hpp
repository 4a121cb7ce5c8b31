#pragma once
// The rounds of Philox 4x32-10, in a separate header so that every device draws the same words. Internal to the library.

#include <cstdint>

namespace polyphase {

struct PhiloxWords {
  std::uint32_t word[4];
};

/// Four random words for a 128-bit counter under a 64-bit key, low words first. The constants are those of the paper (see
/// tensor/random.hpp), section 3.3: Weyl sequences for the key, multipliers for the counter.
constexpr PhiloxWords philox_rounds(PhiloxWords c, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c.word[2];
    c = {{static_cast<std::uint32_t>(product1 >> 32) ^ c.word[1] ^ key0, static_cast<std::uint32_t>(product1),
          static_cast<std::uint32_t>(product0 >> 32) ^ c.word[3] ^ key1, static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

/// Four random words of block `counter` under `key`; the counter's upper 64 bits are 0.
constexpr PhiloxWords philox_block(std::uint64_t key, std::uint64_t counter) {
  return philox_rounds({{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0}},
                       static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
}

}  // namespace polyphase
