#include "io/file_tensor.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("aligned elements are the file's own bytes, others are copied") {
  const TemporaryDirectory directory;
  write_bytes(directory.file("f"), bytes_of(std::vector<float>{1, 2, 3}) + "x");
  const auto file = std::make_shared<MappedFile>("read", directory.file("f"));
  CHECK(io::file_tensor(file, file->data() + 4, DType::f32, {2}).raw() == file->data() + 4);
  const Tensor copy = io::file_tensor(file, file->data() + 1, DType::f32, {3});
  CHECK(copy.numel() == 3);
  CHECK(copy.raw() != file->data() + 1);
  CHECK(io::file_tensor(file, file->data(), DType::f32, {0, 4}).shape() == Shape{0, 4});
}

TEST_CASE("the number of elements, where there is one") {
  CHECK(io::checked_numel({2, 3}) == 6);
  CHECK(io::checked_numel({}) == 1);
  CHECK(io::checked_numel({std::int64_t{1} << 40, std::int64_t{1} << 40, 0}) == 0);
  CHECK(!io::checked_numel({std::int64_t{1} << 40, std::int64_t{1} << 40}));
  CHECK(!io::checked_numel({-1, 0}));
}
