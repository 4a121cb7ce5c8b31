// Hostile and broken files. Each must end in one FormatError that names the error; none may crash, hang or load.

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "io/safetensors.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string length_field(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 255U);
  return bytes;
}

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return length_field(header.size()) + header + std::string(data_bytes, '\0');
}

// The error's text without "load_safetensors: FILE: ".
std::string error_for(const std::string& bytes) {
  static const TemporaryDirectory directory;
  const std::string path = directory.file("hostile");
  write_bytes(path, bytes);
  const std::string text = error_of<FormatError>([&] { return load_safetensors(path); });
  const std::string start = "load_safetensors: " + path + ": ";
  return text.starts_with(start) ? text.substr(start.size()) : "unexpected start: " + text;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

std::string f32(const std::string& shape, const std::string& offsets) { return tensor("\"F32\"", shape, offsets); }

struct Hostile {
  std::string header;
  std::size_t data_bytes;
  std::string error;  // the beginning of the text
};

const char* const kTooLarge = "header: tensor \"a\": shape: expected whole numbers of at least 0 that fit 63 bits, got ";

void check(const std::vector<Hostile>& table) {
  for (const Hostile& item : table) {
    CAPTURE(item.header.substr(0, 200));
    const std::string error = error_for(file_of(item.header, item.data_bytes));
    CAPTURE(error);
    CAPTURE(item.error);
    CHECK(error.starts_with(item.error));
    CHECK(error.find("(at byte ") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("the length of the header") {
  CHECK(error_for("") == "expected at least 8 bytes, the file has 0 (at byte 0)");
  CHECK(error_for("1234567") == "expected at least 8 bytes, the file has 7 (at byte 0)");
  CHECK(error_for(length_field(0)) == "header: expected '{' as the first byte (at byte 8)");
  CHECK(error_for(length_field(3) + "{}") == "header of 3 bytes, the file has 2 after its length (at byte 0)");
  CHECK(error_for(length_field(100000001) + "{}") == "header of 100000001 bytes, the format allows 100000000 (at byte 0)");
  CHECK(error_for(length_field(std::uint64_t{1} << 63) + "{}") ==
        "header of 9223372036854775808 bytes, the format allows 100000000 (at byte 0)");
  CHECK(error_for(length_field(std::numeric_limits<std::uint64_t>::max()) + "{}") ==
        "header of 18446744073709551615 bytes, the format allows 100000000 (at byte 0)");
}

TEST_CASE("what is not JSON, or not a JSON object") {
  const std::string deep_objects = [] {
    std::string text = "{";
    for (int i = 0; i < 100000; ++i) text += "\"a\":{";
    return text;
  }();
  check({
      {"[]", 0, "header: expected '{' as the first byte (at byte 8)"},
      {" {}", 0, "header: expected '{' as the first byte"},
      {"\xef\xbb\xbf{}", 0, "header: expected '{' as the first byte"},
      {"{", 0, "header: not JSON: "},
      {"{}x", 0, "header: not JSON: "},
      {"{}{}", 0, "header: not JSON: "},
      {"{,}", 0, "header: not JSON: "},
      {"{\"a\" 1}", 0, "header: not JSON: "},
      {"{// comment\n}", 0, "header: not JSON: "},
      {std::string("{}\0\0", 4), 0, "header: not JSON: a NUL byte (at byte 10)"},
      {std::string("{}\0garbage", 10), 0, "header: not JSON: a NUL byte"},
      {"{\"\xff\":1}", 0, "header: not JSON: syntax error while parsing object key - invalid string: ill-formed UTF-8 byte"},
      {"{\"\xc0\xaf\":1}", 0,
       "header: not JSON: syntax error while parsing object key - invalid string: ill-formed UTF-8 byte"},
      {"{\"\xed\xa0\x80\":1}", 0,
       "header: not JSON: syntax error while parsing object key - invalid string: ill-formed UTF-8 byte"},
      {"{\"\\ud800\":1}", 0, "header: not JSON: syntax error while parsing object key - invalid string: surrogate"},
      {"{\"a\n\":1}", 0, "header: not JSON: syntax error while parsing object key - invalid string: control character"},
      {"{\"a\":1}", 0, "header: expected an object for \"a\", got 1"},
      {"{\"a\":null}", 0, "header: expected an object for \"a\", got null"},
      {"{\"a\":true}", 0, "header: expected an object for \"a\", got true"},
      {"{\"a\":\"b\"}", 0, "header: expected an object for \"a\", got the string \"b\""},
      {"{\"a\":[]}", 0, "header: expected an object for \"a\", got an array"},
      {"{\"a\":1e400}", 0, "header: not JSON: number overflow parsing '1e400'"},
      {deep_objects, 0, "header: tensor \"a\": expected the fields dtype, shape and data_offsets, got \"a\""},
      {"{\"a\":{\"shape\":" + std::string(100000, '['), 0, "header: expected numbers in shape of \"a\", got an array"},
  });
}

TEST_CASE("metadata") {
  check({
      {R"({"__metadata__":[]})", 0, "header: expected an object for \"__metadata__\", got an array"},
      {R"({"__metadata__":"x"})", 0, "header: expected an object for \"__metadata__\", got the string \"x\""},
      {R"({"__metadata__":{"k":1}})", 0, "header: expected a string for __metadata__ \"k\", got 1"},
      {R"({"__metadata__":{"k":1.5}})", 0, "header: expected a string for __metadata__ \"k\", got 1.5"},
      {R"({"__metadata__":{"k":-1}})", 0, "header: expected a string for __metadata__ \"k\", got -1"},
      {R"({"__metadata__":{"k":{}}})", 0, "header: expected a string for __metadata__ \"k\", got an object"},
      {R"({"__metadata__":{"k":[]}})", 0, "header: expected a string for __metadata__ \"k\", got an array"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "header: the __metadata__ name \"k\" appears twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "header: the name \"__metadata__\" appears twice"},
  });
}

TEST_CASE("a tensor's fields") {
  check({
      {R"({"a":{}})", 0, "header: tensor \"a\": the field dtype is missing"},
      {R"({"a":{"dtype":"F32"}})", 0, "header: tensor \"a\": the field shape is missing"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "header: tensor \"a\": the field data_offsets is missing"},
      {R"({"a":{"dtype":"F32","dtype":"F32"}})", 0, "header: tensor \"a\": the field dtype appears twice"},
      {R"({"a":{"strides":[1]}})", 0,
       "header: tensor \"a\": expected the fields dtype, shape and data_offsets, got \"strides\""},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
       "header: the name \"a\" appears twice"},
      {tensor("1", "[1]", "[0,4]"), 4, "header: expected a string for dtype of \"a\", got 1"},
      {tensor("[\"F32\"]", "[1]", "[0,4]"), 4, "header: expected a string for dtype of \"a\", got an array"},
      {tensor("\"F33\"", "[1]", "[0,4]"), 4,
       "header: tensor \"a\": unknown dtype \"F33\"; supported are F32, F64, F16, BF16 and I64"},
      {tensor("\"f32\"", "[1]", "[0,4]"), 4, "header: tensor \"a\": unknown dtype \"f32\""},
      {tensor("\"\"", "[1]", "[0,4]"), 4, "header: tensor \"a\": unknown dtype \"\""},
      {tensor("\"F32\"", "{}", "[0,4]"), 4, "header: expected an array for shape of \"a\", got an object"},
      {tensor("\"F32\"", "\"1\"", "[0,4]"), 4, "header: expected an array for shape of \"a\", got the string \"1\""},
      {tensor("\"F32\"", "1", "[0,4]"), 4, "header: expected an array for shape of \"a\", got 1"},
  });
  for (const char* name : {"BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "F8_E4M3", "F8_E5M2", "C64"}) {
    CHECK(error_for(file_of(tensor("\"" + std::string(name) + "\"", "[1]", "[0,1]"), 1))
              .starts_with("header: tensor \"a\": the dtype " + std::string(name) +
                           " is not supported; supported are F32, F64, F16, BF16 and I64"));
  }
}

TEST_CASE("shapes") {
  const std::string too_large = kTooLarge;
  check({
      {f32("[-1]", "[0,4]"), 4, too_large + "-1"},
  });
  const auto refused = [&](const char* shape, const std::string& digits) {
    CAPTURE(shape);
    CHECK(error_for(file_of(f32(shape, "[0,4]"), 4)).starts_with(too_large + digits));
  };
  refused("[1.0]", "1.0");
  refused("[1e2]", "1e2");
  refused("[9223372036854775808]", "9223372036854775808");
  refused("[18446744073709551616]", "18446744073709551616");
  check({
      {f32("[\"1\"]", "[0,4]"), 4, "header: expected numbers in shape of \"a\", got the string \"1\""},
      {f32("[null]", "[0,4]"), 4, "header: expected numbers in shape of \"a\", got null"},
      {f32("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "header: tensor \"a\": shape: at most 8 dimensions are supported, got more"},
      {f32("[4294967296,4294967296]", "[0,4]"), 4, "header: tensor \"a\": shape (4294967296, 4294967296) does not fit 63 bits"},
      {f32("[9223372036854775807]", "[0,4]"), 4, "header: tensor \"a\": shape (9223372036854775807,) does not fit 63 bits"},
      {f32("[2]", "[0,4]"), 4, "header: tensor \"a\": shape (2,) of f32 needs 8 bytes, data_offsets give 4"},
      {f32("[]", "[0,8]"), 8, "header: tensor \"a\": shape () of f32 needs 4 bytes, data_offsets give 8"},
      {f32("[0,9223372036854775807]", "[0,4]"), 4,
       "header: tensor \"a\": shape (0, 9223372036854775807) of f32 needs 0 bytes, data_offsets give 4"},
      {f32("[0,9223372036854775807,9223372036854775807]", "[0,0]"), 0,
       "header: tensor \"a\": shape (0, 9223372036854775807, 9223372036854775807) does not fit 63 bits"},
      {f32("[0,4611686018427387904,4611686018427387904,8]", "[0,0]"), 0,
       "header: tensor \"a\": shape (0, 4611686018427387904, 4611686018427387904, 8) does not fit 63 bits"},
  });
}

TEST_CASE("offsets, holes and overlap") {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)") + first +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
  };
  check({
      {f32("[1]", "[0]"), 4, "header: tensor \"a\": data_offsets: expected 2 numbers, got 1"},
      {f32("[1]", "[]"), 4, "header: tensor \"a\": data_offsets: expected 2 numbers, got 0"},
      {f32("[1]", "[0,4,8]"), 4, "header: tensor \"a\": data_offsets: expected 2 numbers, got more"},
      {f32("[1]", "[0,-4]"), 4, "header: tensor \"a\": data_offsets: expected whole numbers of at least 0"},
      {f32("[1]", "[0,4.0]"), 4, "header: tensor \"a\": data_offsets: expected whole numbers of at least 0"},
      {f32("[1]", "[4,0]"), 4, "header: tensor \"a\": data_offsets: begin 4 is past end 0"},
      {f32("[1]", "[0,8]"), 4, "header: tensor \"a\": data_offsets: end 8 is past the data, which has 4 bytes"},
      {f32("[1]", "[0,4]"), 3, "header: tensor \"a\": data_offsets: end 4 is past the data, which has 3 bytes"},
      {f32("[1]", "[18446744073709551612,18446744073709551616]"), 4,
       "header: tensor \"a\": data_offsets: expected whole numbers of at least 0"},
      {f32("[1]", "[9223372036854775803,9223372036854775807]"), 4,
       "header: tensor \"a\": data_offsets: end 9223372036854775807 is past the data, which has 4 bytes"},
      {f32("[1]", "[4,8]"), 8, "data: a hole of 4 bytes before tensor \"a\""},
      {f32("[1]", "[0,4]"), 5, "data: 1 bytes at the end belong to no tensor"},
      {"{}", 1, "data: 1 bytes at the end belong to no tensor (at byte 10)"},
      {two("[0,4]", "[0,4]"), 4, "data: tensor \"b\" overlaps the one before it"},
      {two("[0,4]", "[2,6]"), 6, "data: tensor \"b\" overlaps the one before it"},
      {two("[0,4]", "[5,9]"), 9, "data: a hole of 1 bytes before tensor \"b\""},
      {two("[4,8]", "[0,4]"), 9, "data: 1 bytes at the end belong to no tensor"},
  });
}

TEST_CASE("a file cut short anywhere is refused, and so is one with any byte of its header spoilt") {
  const std::string whole = file_of(f32("[2]", "[0,8]"), 8);
  REQUIRE(error_for(whole) == "unexpected start: no error");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    const std::string error = error_for(whole.substr(0, length));
    CHECK(error.find("(at byte ") != std::string::npos);
  }
  for (std::size_t i = 8; i < whole.size() - 8; ++i) {
    std::string spoilt = whole;
    spoilt[i] = '\x01';
    CAPTURE(i);
    CHECK(error_for(spoilt).find("(at byte ") != std::string::npos);
  }
}

TEST_CASE("what is allowed: white space, any order, empty tensors, no tensors") {
  CHECK(error_for(file_of("{}", 0)) == "unexpected start: no error");
  CHECK(error_for(file_of("{} \n\t ", 0)) == "unexpected start: no error");
  CHECK(error_for(file_of(
            R"({"b":{"data_offsets":[4,8],"shape":[],"dtype":"F32"},"a":{"shape":[1],"dtype":"F32","data_offsets":[0,4]},
                              "z":{"dtype":"I64","shape":[0],"data_offsets":[8,8]},"":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]}})",
            8)) == "unexpected start: no error");
}

TEST_CASE("the error knows its offset and keeps hostile names from the terminal") {
  const TemporaryDirectory directory;
  write_bytes(directory.file("a"), file_of("{}", 3));
  try {
    static_cast<void>(load_safetensors(directory.file("a")));
    FAIL("expected FormatError");
  } catch (const FormatError& error) {
    CHECK(error.offset() == 10);
  }
  const std::string name(5000, '\x7f');
  CHECK(error_for(file_of("{\"" + name + "\":1}", 0)).size() < 500);
  CHECK(error_for(file_of("{\"\\u001b[2J\":1}", 0)).starts_with("header: expected an object for \"\\x1b[2J\", got 1"));
}
