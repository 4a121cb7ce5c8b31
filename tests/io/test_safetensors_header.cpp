#include "io/safetensors_header.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::io;
using namespace polyphase::testing;

TEST_CASE("the header is the documented JSON, metadata first, padded with spaces to a multiple of 8") {
  SafetensorsHeader header;
  header.entries = {{"b", DType::f32, {2, 3}, 0, 24}, {"a", DType::bf16, {}, 24, 26}};
  const std::string plain =
      R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";
  const std::string text = format_header("f", header);
  CHECK(text.size() % 8 == 0);
  CHECK(text == plain + std::string(text.size() - plain.size(), ' '));
  header.entries.clear();
  header.metadata = {{"format", "pt"}, {"note", "a \"quoted\" one"}};
  CHECK(format_header("f", header) == R"({"__metadata__":{"format":"pt","note":"a \"quoted\" one"}}      )");
  CHECK(format_header("f", {}) == "{}      ");
}

TEST_CASE("names that are not UTF-8 and headers past the limit are refused") {
  SafetensorsHeader header;
  header.entries = {{"\xff", DType::f32, {}, 0, 4}};
  CHECK(error_of<FormatError>([&] { return format_header("f", header); }) ==
        "save_safetensors: f: \"\\xff\" is not valid UTF-8");
  header.entries.clear();
  header.metadata = {{"big", std::string(kMaxHeaderBytes, 'x')}};
  CHECK(error_of<FormatError>([&] { return format_header("f", header); }) ==
        "save_safetensors: f: the header would be 100000032 bytes, the format allows 100000000");
}

TEST_CASE("dtypes have the format's names both ways") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    CHECK(dtype_from_format(dtype_to_format(dtype)) == dtype);
  }
  CHECK(dtype_to_format(DType::bf16) == "BF16");
  CHECK(!dtype_from_format("f32").has_value());
}

TEST_CASE("a quoted name is fit for a terminal") {
  CHECK(in_quotes("a.b") == "\"a.b\"");
  CHECK(in_quotes("\x1b[2J\n\xc3") == "\"\\x1b[2J\\x0a\\xc3\"");
  CHECK(in_quotes(std::string(100, 'x')) == "\"" + std::string(80, 'x') + "...\"");
}
