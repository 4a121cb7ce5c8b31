#include "cpu/isa.hpp"

#include <doctest/doctest.h>

#include <string>

#include "support/conv.hpp"
#include "tensor/error.hpp"

using namespace polyphase;

TEST_CASE("baseline is always there, and what is in use can be run") {
  CHECK(cpu::isa_available(Isa::baseline));
  CHECK(cpu::isa_available(cpu::current_isa()));
  CHECK((!cpu::isa_available(Isa::avx512) || cpu::isa_available(Isa::avx2)));
}

TEST_CASE("the name follows the choice, and dispatch as well") {
  std::string names;
  testing::for_each_isa([&] {
    names += std::string(cpu_isa()) + ' ';
    CHECK(cpu::dispatch_isa([](auto tag) { return tag.value; }) == cpu::current_isa());
  });
  CHECK(names.rfind("baseline ", 0) == 0);
}

TEST_CASE("an instruction set this machine lacks is refused") {
  for (const Isa isa : {Isa::avx2, Isa::avx512}) {
    if (cpu::isa_available(isa)) continue;
    const std::string name = isa == Isa::avx2 ? "avx2" : "avx512";
    CHECK_THROWS_WITH_AS(cpu::set_isa(isa), ("set_isa: this machine cannot run " + name + " kernels").c_str(), Error);
  }
}
