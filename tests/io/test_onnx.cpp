#include "io/onnx.hpp"

#include <doctest/doctest.h>

#include "support/file_bytes.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

NamedTensors loaded(const std::string& bytes) { return loaded_from(bytes, load_onnx); }

bool has(const std::string& bytes, const char* part) { return refuses(bytes, "load_onnx", part, load_onnx); }

const std::string kSix = bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5});

}  // namespace

TEST_CASE("initializers in the file's order, of each kind of data") {
  const std::string floats = protobuf::bytes(1, protobuf::varint(3)) + protobuf::number(2, 1) + protobuf::bytes(8, "list") +
                             protobuf::bytes(4, bytes_of(std::vector<float>{7, 8, 9}));
  const NamedTensors tensors = loaded(protobuf::model(
      {protobuf::tensor("dec.a", {2, 3}, 1, kSix), floats, protobuf::tensor("long", {1}, 7, bytes_of(std::int64_t{-4})),
       protobuf::tensor("none", {0, 3}, 1, ""), protobuf::tensor("one", {}, 11, bytes_of(2.5))}));
  REQUIRE(tensors.size() == 5);
  CHECK(tensors[0].first == "dec.a");
  CHECK(tensors[0].second.shape() == Shape{2, 3});
  CHECK(tensors[0].second.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(tensors[1].second.to_vector<float>() == std::vector<float>{7, 8, 9});
  CHECK(tensors[2].second.item<std::int64_t>() == -4);
  CHECK(tensors[3].second.shape() == Shape{0, 3});
  CHECK(tensors[4].second.item<double>() == 2.5);
}

TEST_CASE("what is not initializers' data is refused") {
  CHECK(has(protobuf::model({protobuf::tensor("a", {7}, 1, kSix)}), "expected (7,) elements of 4 bytes, got 24 bytes"));
  CHECK(has(protobuf::model({protobuf::tensor("a", {1ULL << 62U, 1ULL << 62U}, 1, kSix)}), "got 24 bytes"));
  CHECK(has(protobuf::model({protobuf::tensor("a", {UINT64_MAX}, 1, kSix)}), "has the size"));
  CHECK(has(protobuf::model({protobuf::tensor("a", {6}, 8, kSix)}), "the data type 8"));
  CHECK(has(protobuf::model({protobuf::tensor("", {6}, 1, kSix)}), "no name"));
  CHECK(has(protobuf::model({protobuf::tensor("a", {6}, 1, kSix), protobuf::tensor("a", {6}, 1, kSix)}), "there twice"));
  CHECK(has(protobuf::model({protobuf::tensor("a", {6}, 1, kSix) + protobuf::number(14, 1)}), "in another file"));
  CHECK(has(protobuf::number(1, 8), "expected a graph"));
  CHECK(has("", "expected a graph"));
  CHECK(has(protobuf::number(7, 3), "expected bytes in the field 7"));
  CHECK(has("\x0b", "wire type 3"));
  CHECK(has("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "more than 64 bits"));
}

TEST_CASE("a file that is cut off is refused, or has fewer fields") {
  const std::string whole = protobuf::model({protobuf::tensor("a", {6}, 1, kSix)});
  for (std::size_t length = 0; length < whole.size(); ++length) CHECK(has(whole.substr(0, length), ""));
}
