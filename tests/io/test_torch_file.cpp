#include "io/torch_file.hpp"

#include <doctest/doctest.h>

#include "support/file_bytes.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

TorchFile loaded(const std::string& bytes) { return loaded_from(bytes, load_torch); }

std::string archive_of(const std::string& value, std::size_t floats = 6) {
  std::vector<float> values(floats);
  for (std::size_t i = 0; i < floats; ++i) values[i] = static_cast<float>(i);
  return torch_archive(value, {{"0", bytes_of(values)}});
}

bool error_has(const std::string& bytes, const std::string& part) { return refuses(bytes, "load_torch", part, load_torch); }

}  // namespace

TEST_CASE("a state dict of the archive, in dicts of dicts, with what else there is as JSON") {
  const std::string state = pickle::ordered_dict(pickle::text("a.weight") + pickle::tensor("0", 6, {2, 3}, {3, 1}) +
                                                 pickle::text("steps") + pickle::tensor("1", 1, {}, {}, 0, "LongStorage"));
  const std::string kwargs =
      pickle::dict(pickle::text("rates") + "](" + pickle::number(8) + pickle::number(-2) + "e" + pickle::text("on") + "\x88" +
                   pickle::text("none") + "N" + pickle::text("x") + "G" + std::string("\x3f\xf8\0\0\0\0\0\0", 8));
  const TorchFile file =
      loaded(torch_archive(pickle::dict(pickle::text("generator") + state + pickle::text("kwargs") + kwargs),
                           {{"0", bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5})}, {"1", bytes_of(std::int64_t{7})}}));
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[0].first == "generator.a.weight");
  CHECK(file.tensors[0].second.shape() == Shape{2, 3});
  CHECK(file.tensors[0].second.to_vector<float>() == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(file.tensors[1].second.item<std::int64_t>() == 7);
  CHECK(file.plain == R"({"kwargs":{"on":true,"rates":[8,-2],"x":1.5}})");
}

TEST_CASE("the format before the archive") {
  const TorchFile file =
      loaded(torch_before_archive(pickle::dict(pickle::text("g") + pickle::tensor("94", 3, {3}, {1})), {{"94", {1, 2, 3}}}));
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].first == "g");
  CHECK(file.tensors[0].second.to_vector<float>() == std::vector<float>{1, 2, 3});
}

TEST_CASE("a lone tensor has no name; views of one storage have their elements") {
  CHECK(loaded(archive_of(pickle::tensor("0", 6, {6}, {1}))).tensors[0].first.empty());
  const TorchFile file =
      loaded(archive_of("](" + pickle::tensor("0", 6, {3, 2}, {1, 3}) + pickle::tensor("0", 6, {2}, {2}, 1) + "e"));
  CHECK(file.tensors[0].second.to_vector<float>() == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(file.tensors[1].first == "1");
  CHECK(file.tensors[1].second.to_vector<float>() == std::vector<float>{1, 3});
}

TEST_CASE("elements of other widths become a Tensor's own") {
  const auto of = [](const std::string& storage, const std::string& data) {
    return loaded(torch_archive(pickle::tensor("0", 2, {2}, {1}, 0, storage), {{"0", data}})).tensors[0].second;
  };
  CHECK(of("IntStorage", bytes_of(std::vector<std::int32_t>{-1, 5})).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{-1, 5});
  CHECK(of("BoolStorage", std::string("\x01\x00", 2)).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 0});
  CHECK(of("CharStorage", "\xff\x02").to_vector<std::int64_t>() == std::vector<std::int64_t>{-1, 2});
  CHECK(of("DoubleStorage", bytes_of(std::vector<double>{0.1, 2})).to_vector<double>() == std::vector<double>{0.1, 2});
  CHECK(of("HalfStorage", bytes_of(std::vector<std::uint16_t>{0x3c00, 0})).dtype() == DType::f16);
  CHECK(of("BFloat16Storage", bytes_of(std::vector<std::uint16_t>{0x3f80, 0})).to(DType::f32).to_vector<float>() ==
        std::vector<float>{1, 0});
}

TEST_CASE("nothing is executed: every function but the tensors' own is refused by name") {
  CHECK(error_has(archive_of(pickle::call(pickle::global("os", "system"), pickle::text("true"))), "\"os.system\""));
  CHECK(
      error_has(archive_of(pickle::global("builtins", "eval") + "0" + pickle::tensor("0", 6, {6}, {1})), "\"builtins.eval\""));
  CHECK(error_has(archive_of(pickle::text("posix") + pickle::text("system") + "\x93"), "\"posix.system\""));
  CHECK(error_has(archive_of(pickle::global("torch.storage", "_load_from_bytes")), "only tensors and plain containers"));
  CHECK(error_has(archive_of(")" + pickle::global("torch", "FloatStorage") + "\x81"), "opcode"));
  CHECK(error_has(archive_of(pickle::call(pickle::global("torch", "FloatStorage"), pickle::number(1 << 30))),
                  "calls torch.FloatStorage"));
}

TEST_CASE("tensors that reach past their storage are refused before anything is allocated") {
  CHECK(error_has(archive_of(pickle::tensor("0", 6, {7}, {1})), "more elements than its storage"));
  CHECK(error_has(archive_of(pickle::tensor("0", 6, {6}, {1}, 1)), "reaches past"));
  CHECK(error_has(archive_of(pickle::tensor("0", 6, {2, 3}, {4, 1})), "reaches past"));
  CHECK(error_has(archive_of(pickle::tensor("0", 6, {2}, {2147483647})), "reaches past"));
  CHECK(error_has(archive_of(pickle::tensor("0", 6, {2147483647, 2147483647, 2147483647}, {0, 0, 0})), "more elements"));
  CHECK(error_has(archive_of(pickle::tensor("0", 6, {-1}, {1})), "no sizes"));
  CHECK(
      error_has(archive_of(pickle::tensor("0", 6, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1})), "9 dimensions"));
  CHECK(error_has(archive_of(pickle::tensor("0", 1 << 30, {6}, {1})), "has 24 bytes"));
  CHECK(error_has(archive_of(pickle::tensor("1", 6, {6}, {1})), "is missing"));
}

TEST_CASE("containers that contain themselves, or each other many times, end in a sentence") {
  CHECK(error_has(archive_of("]q\x01h\x01\x61"), "nested too deeply"));
  std::string nested = "](" + pickle::number(1) + "eq\x01";
  for (char level = 2; level < 30; ++level)
    nested += std::string("](h") + static_cast<char>(level - 1) + "h" + static_cast<char>(level - 1) + "eq" + level;
  CHECK(error_has(archive_of(nested), "nested too deeply"));
}

TEST_CASE("a file that is cut off or none of torch.save's") {
  CHECK(error_has("hello", "expected a file of torch.save"));
  CHECK(error_has(zip_of({{"a.txt", "hello"}}), "no data.pkl"));
  const std::string archive = archive_of(pickle::dict(pickle::text("g") + pickle::tensor("0", 6, {6}, {1})));
  const std::string before =
      torch_before_archive(pickle::dict(pickle::text("g") + pickle::tensor("0", 3, {3}, {1})), {{"0", {1, 2, 3}}});
  for (const std::string& whole : {archive, before})
    for (std::size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(length);
      CHECK(error_has(whole.substr(0, length), ""));
    }
}
