#include "io/safetensors.hpp"

#include <doctest/doctest.h>

#include <cstring>

#include "io/safetensors_header.hpp"
#include "support/grouping_locale.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.contiguous();
  return {static_cast<const char*>(host.raw()), static_cast<std::size_t>(host.numel()) * size_of(host.dtype())};
}

}  // namespace

TEST_CASE("every dtype comes back with its bits, in the order given") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a.safetensors");
  NamedTensors tensors;
  std::uint64_t seed = 0;
  for (const DType dtype : {DType::f16, DType::f32, DType::bf16, DType::f64}) {
    tensors.emplace_back(std::string(name_of(dtype)), random_f64({3, 5}, ++seed).to(dtype));
  }
  tensors.emplace_back("counts", Tensor::from_vector(std::vector<std::int64_t>{-1, INT64_MAX, INT64_MIN}));
  tensors.emplace_back("scalar", Tensor::full({}, 2.5));
  tensors.emplace_back("nothing", Tensor::zeros({3, 0, 2}));
  tensors.emplace_back("half.odd", Tensor::ones({1}, {.dtype = DType::f16}));
  tensors.emplace_back("special", Tensor::from_vector(std::vector<float>{NAN, INFINITY, -INFINITY, -0.0F, 1e-45F}));
  save_safetensors(path, tensors, {{"format", "pt"}, {"Grüße", "\n\"\\"}});

  const SafetensorsFile file = load_safetensors(path);
  CHECK(file.metadata == Metadata{{"format", "pt"}, {"Grüße", "\n\"\\"}});
  REQUIRE(file.tensors.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = file.tensors[i].first;
    const Tensor& tensor = file.tensors[i].second;
    CAPTURE(name);
    CHECK(name == tensors[i].first);
    CHECK(tensor.shape() == tensors[i].second.shape());
    CHECK(tensor.dtype() == tensors[i].second.dtype());
    CHECK(bytes_of(tensor) == bytes_of(tensors[i].second));
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.raw()) % size_of(tensor.dtype()) == 0);
  }
  // Also aligned in the file, so that reading copies nothing.
  const std::string bytes = read_bytes(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::uint64_t start = io::kLengthBytes + length;
  const std::string_view header(bytes.data() + io::kLengthBytes, length);
  for (const io::SafetensorsEntry& entry : io::parse_header(path, header, bytes.size() - start).entries)
    CHECK((start + entry.begin) % size_of(entry.dtype) == 0);
}

TEST_CASE("a file is the same under every locale of the program") {
  const TemporaryDirectory directory;
  const NamedTensors tensors = {{"a", Tensor::zeros({2000, 3})}};
  save_safetensors(directory.file("classic"), tensors);
  {
    const GroupingLocale locale;
    save_safetensors(directory.file("grouping"), tensors);
    CHECK(load_safetensors(directory.file("classic")).at("a").shape() == Shape{2000, 3});
  }
  CHECK(read_bytes(directory.file("grouping")) == read_bytes(directory.file("classic")));
}

TEST_CASE("the same tensors give the same file, and what was read writes the same file again") {
  const TemporaryDirectory directory;
  const NamedTensors tensors = {{"a", random_f64({7})}, {"b", random_f64({2, 2}).to(DType::f16)}};
  save_safetensors(directory.file("1"), tensors, {{"k", "v"}});
  const SafetensorsFile file = load_safetensors(directory.file("1"));
  save_safetensors(directory.file("2"), file.tensors, file.metadata);
  CHECK(read_bytes(directory.file("1")) == read_bytes(directory.file("2")));
  // Overwrites the file that the tensors are mapped from.
  save_safetensors(directory.file("1"), file.tensors, file.metadata);
  CHECK(read_bytes(directory.file("1")) == read_bytes(directory.file("2")));
}

TEST_CASE("views and tensors that follow gradients are written as what they show") {
  const TemporaryDirectory directory;
  const Tensor base = random_f64({4, 6});
  Tensor leaf = random_f64({3}, 2);
  leaf.set_requires_grad(true);
  save_safetensors(
      directory.file("a"),
      {{"t", base.transpose(0, 1)}, {"s", base.slice(1, 1, 6, 2)}, {"e", base.slice(0, 0, 1).expand({5, 6})}, {"leaf", leaf}});
  const SafetensorsFile file = load_safetensors(directory.file("a"));
  CHECK(bytes_of(file.at("t")) == bytes_of(base.transpose(0, 1)));
  CHECK(bytes_of(file.at("s")) == bytes_of(base.slice(1, 1, 6, 2)));
  CHECK(file.at("e").shape() == Shape{5, 6});
  CHECK(bytes_of(file.at("e")) == bytes_of(base.slice(0, 0, 1).expand({5, 6})));
  CHECK(bytes_of(file.at("leaf")) == bytes_of(leaf.detach()));
  CHECK_FALSE(file.at("leaf").requires_grad());
}

TEST_CASE("tensors outlive the file object and the file, and writing to one changes neither") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  save_safetensors(path, {{"a", Tensor::ones({4})}, {"b", Tensor::ones({4})}});
  const std::string before = read_bytes(path);
  Tensor a = load_safetensors(path).at("a");
  const Tensor b = load_safetensors(path).at("b");
  const std::uint64_t version = b.storage().version();
  a.fill_(7);
  CHECK(read_bytes(path) == before);
  CHECK(b.storage().version() == version);
  std::filesystem::remove(path);
  CHECK(a.to_vector<float>() == std::vector<float>(4, 7.0F));
  CHECK(b.to_vector<float>() == std::vector<float>(4, 1.0F));
}

TEST_CASE("a tensor that the file does not align is copied") {
  const TemporaryDirectory directory;
  std::string header =
      R"({"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"f":{"dtype":"F32","shape":[2],"data_offsets":[2,10]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  const float values[] = {1.5F, -2.0F};
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  bytes += header + std::string(2, '\0') + std::string(reinterpret_cast<const char*>(values), sizeof values);
  write_bytes(directory.file("a"), bytes);
  const Tensor f = load_safetensors(directory.file("a")).at("f");
  CHECK(reinterpret_cast<std::uintptr_t>(f.raw()) % 4 == 0);
  CHECK(f.to_vector<float>() == std::vector<float>{1.5F, -2.0F});
}

TEST_CASE("a name that is not there is named") {
  const TemporaryDirectory directory;
  save_safetensors(directory.file("a"), {{"x", Tensor::ones({1})}});
  const SafetensorsFile file = load_safetensors(directory.file("a"));
  CHECK(file.find("y") == nullptr);
  CHECK(file.find("x") != nullptr);
  CHECK(error_of<Error>([&] { return file.at("y"); }) == "safetensors: no tensor \"y\" among the 1 of the file");
}

TEST_CASE("what cannot be written is refused in words and the old file stays") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("a");
  save_safetensors(path, {});
  const std::string before = read_bytes(path);
  const Tensor one = Tensor::ones({1});
  const auto error = [&](const NamedTensors& tensors) {
    return error_of<FormatError>([&] { return save_safetensors(path, tensors), 0; });
  };
  CHECK(error({{"a", one}, {"a", one}}) == "save_safetensors: " + path + ": tensor \"a\" appears twice");
  CHECK(error({{"a", Tensor()}}) == "save_safetensors: " + path + ": tensor \"a\" is undefined");
  CHECK(error({{"__metadata__", one}}) ==
        "save_safetensors: " + path + ": tensor \"__metadata__\" has the name that the format reserves for metadata");
  CHECK(error({{"\xc3\x28", one}}) == "save_safetensors: " + path + ": \"\\xc3(\" is not valid UTF-8");
  CHECK(read_bytes(path) == before);
  CHECK(directory.count() == 1);
}
