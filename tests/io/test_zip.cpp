#include "io/zip.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string error_for(const std::string& archive) {
  return error_of<FormatError>([&] { return io::zip_members("load", "f", archive).size(); });
}

}  // namespace

TEST_CASE("members are found at their positions, also with a comment after the archive") {
  std::string archive = zip_of({{"a/b", "hello"}, {"c", ""}});
  archive[archive.size() - 2] = 3;
  archive += "PK\x05";
  const auto members = io::zip_members("load", "f", archive);
  REQUIRE(members.size() == 2);
  CHECK(archive.substr(members.at("a/b").begin, members.at("a/b").size) == "hello");
  CHECK(members.at("c").size == 0);
}

TEST_CASE("numbers of 64 bits") {
  // Sizes and offset of the one member stand in the extra field, the directory's in the ZIP64 record.
  const auto u16 = [](std::uint16_t value) { return bytes_of(value); };
  const auto u32 = [](std::uint32_t value) { return bytes_of(value); };
  const auto u64 = [](std::uint64_t value) { return bytes_of(value); };
  const std::uint32_t elsewhere = 0xFFFFFFFF;
  const std::string local = u32(0x04034b50) + u16(45) + u16(0) + u16(0) + u32(0) + u32(0) + u32(elsewhere) + u32(elsewhere) +
                            u16(1) + u16(0) + "m" + "data";
  const std::string entry = u32(0x02014b50) + u16(45) + u16(45) + u16(0) + u16(0) + u32(0) + u32(0) + u32(elsewhere) +
                            u32(elsewhere) + u16(1) + u16(28) + u16(0) + u16(0) + u16(0) + u32(0) + u32(elsewhere) + "m" +
                            u16(1) + u16(24) + u64(4) + u64(4) + u64(0);
  const std::string record =
      u32(0x06064b50) + u64(44) + u16(45) + u16(45) + u32(0) + u32(0) + u64(1) + u64(1) + u64(entry.size()) + u64(local.size());
  const std::string locator = u32(0x07064b50) + u32(0) + u64(local.size() + entry.size()) + u32(1);
  const std::string end =
      u32(0x06054b50) + u16(0) + u16(0) + u16(0xFFFF) + u16(0xFFFF) + u32(elsewhere) + u32(elsewhere) + u16(0);
  const std::string archive = local + entry + record + locator + end;
  const auto members = io::zip_members("load", "f", archive);
  REQUIRE(members.count("m") == 1);
  CHECK(archive.substr(members.at("m").begin, members.at("m").size) == "data");
}

TEST_CASE("an archive that contradicts itself is refused") {
  const std::string archive = zip_of({{"a", "hello"}});
  for (std::size_t length = 0; length < archive.size(); ++length)
    CHECK(error_for(archive.substr(0, length)).starts_with("load: f: "));
  std::string compressed = archive;
  compressed[archive.find("PK\x01\x02") + 10] = 8;
  CHECK(error_for(compressed).find("compressed") != std::string::npos);
  std::string past = archive;
  past[archive.find("PK\x01\x02") + 20] = 100;
  past[archive.find("PK\x01\x02") + 24] = 100;
  CHECK(error_for(past).find("more bytes") != std::string::npos);
  CHECK(error_for(zip_of({{"a", "1"}, {"a", "2"}})).find("there twice") != std::string::npos);
}
