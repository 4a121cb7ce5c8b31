#include "tensor/random.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "tensor/error.hpp"

namespace pp = polyphase;
using Words4 = std::array<std::uint32_t, 4>;
using Words2 = std::array<std::uint32_t, 2>;

TEST_CASE("Philox 4x32-10 gives the known answers of the authors' library, Random123") {
  CHECK(pp::philox4x32(Words4{}, Words2{}) == Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(pp::philox4x32(Words4{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, Words2{0xffffffff, 0xffffffff}) ==
        Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(pp::philox4x32(Words4{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, Words2{0xa4093822, 0x299f31d0}) ==
        Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("seed and offset are the low words first") {
  CHECK(pp::philox4x32(0x1122334455667788u, 0x99aabbccddeeff00u) ==
        pp::philox4x32(Words4{0xddeeff00, 0x99aabbcc, 0, 0}, Words2{0x55667788, 0x11223344}));
}

TEST_CASE("a generator is its state") {
  pp::Generator generator(42);
  CHECK(generator.state() == pp::GeneratorState{42, 0});
  CHECK(generator.take(3) == pp::GeneratorState{42, 0});
  const pp::GeneratorState saved = generator.state();
  CHECK(saved.offset == 3);
  const double first = generator.uniform();
  CHECK(generator.state().offset == 4);
  generator.set_state(saved);
  CHECK(generator.uniform() == first);
  generator.seed(42);
  CHECK(generator.state() == pp::GeneratorState{42, 0});
}

TEST_CASE("integers are in range and even") {
  pp::Generator generator(5);
  std::vector<int> counts(6, 0);
  const int draws = 60000;
  for (int i = 0; i < draws; ++i) ++counts.at(static_cast<std::size_t>(generator.integer(6)));
  double chi_squared = 0;
  for (const int count : counts) chi_squared += std::pow(count - draws / 6.0, 2) / (draws / 6.0);
  CHECK(chi_squared < 20.5);  // 5 degrees of freedom, one in a thousand
  CHECK(generator.integer(1) == 0);
  CHECK_THROWS_WITH_AS((void)generator.integer(0), "integer: expected a bound of at least 1, got 0", pp::ShapeError);
}

TEST_CASE("large bounds have no modulo bias") {
  // With a bound of 3/4 of 2^63, a plain remainder would put two thirds of the numbers into the lower third of the range.
  const std::int64_t bound = std::int64_t{3} << 61;
  pp::Generator generator(9);
  int low = 0;
  const int draws = 20000;
  for (int i = 0; i < draws; ++i) {
    const std::int64_t value = generator.integer(bound);
    CHECK(value >= 0);
    CHECK(value < bound);
    low += value < bound / 3;
  }
  CHECK(std::abs(low - draws / 3.0) < 5 * std::sqrt(draws * 2.0 / 9));
}

TEST_CASE("uniform doubles fill [0, 1)") {
  pp::Generator generator(3);
  double sum = 0;
  for (int i = 0; i < 20000; ++i) {
    const double value = generator.uniform();
    CHECK((value >= 0 && value < 1));
    sum += value;
  }
  CHECK(std::abs(sum / 20000 - 0.5) < 5 / std::sqrt(12.0 * 20000));
}

TEST_CASE("the default generator: seeded, guarded, one per thread") {
  pp::manual_seed(11);
  const double first = pp::default_generator().uniform();
  pp::Generator other(99);
  {
    const pp::GeneratorGuard guard(other);
    CHECK(&pp::default_generator() == &other);
    {
      pp::Generator third(7);
      const pp::GeneratorGuard inner(third);
      CHECK(&pp::default_generator() == &third);
    }
    CHECK(&pp::default_generator() == &other);
    std::thread([] { CHECK(pp::default_generator().state() == pp::GeneratorState{0, 0}); }).join();
  }
  CHECK(pp::default_generator().state() == pp::GeneratorState{11, 1});
  pp::manual_seed(11);
  CHECK(pp::default_generator().uniform() == first);
}
