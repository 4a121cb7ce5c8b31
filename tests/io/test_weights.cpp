#include "io/weights.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "io/npy.hpp"
#include "support/helpers.hpp"
#include "support/temporary_directory.hpp"
#include "support/torch_bytes.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

std::string error_for(const std::string& path) {
  return error_of<FormatError>([&] { return load_weights(path); });
}

}  // namespace

TEST_CASE("the format is recognised by the content, not by the name") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("model.bin");
  const Tensor x = random_f64({2, 3});
  save_safetensors(path, {{"x", x}}, {{"network", "n"}});
  WeightsFile file = load_weights(path);
  CHECK(file.format == WeightsFormat::safetensors);
  CHECK(file.metadata.at("network") == "n");
  CHECK(max_difference(file.tensors.at(0).second, x) == 0);

  save_npy(path, x);
  file = load_weights(path);
  CHECK(file.format == WeightsFormat::npy);
  CHECK(file.tensors.at(0).first.empty());

  write_bytes(path,
              torch_archive(pickle::dict(pickle::text("x") + pickle::tensor("0", 1, {1}, {1}) + pickle::text("n") + "K\x05"),
                            {{"0", bytes_of(1.0F)}}));
  file = load_weights(path);
  CHECK(file.format == WeightsFormat::torch);
  CHECK(file.metadata.at("plain") == R"({"n":5})");

  write_bytes(path, torch_before_archive(pickle::tensor("0", 1, {1}, {1}), {{"0", {4}}}));
  CHECK(load_weights(path).tensors.at(0).second.item<float>() == 4);

  write_bytes(path, protobuf::model({protobuf::tensor("x", {1}, 1, bytes_of(3.0F))}));
  CHECK(load_weights(path).format == WeightsFormat::onnx);
}

TEST_CASE("a file of none of the formats is refused with its first bytes") {
  const TemporaryDirectory directory;
  write_bytes(directory.file("a"), "RIFF    WAVE");
  CHECK(error_for(directory.file("a")).find("begins with \"RIFF    WAVE\"") != std::string::npos);
  write_bytes(directory.file("a"), "");
  CHECK(error_for(directory.file("a")).find("is empty") != std::string::npos);
  CHECK(error_for(directory.file("b")).find("No such file") != std::string::npos);
  write_bytes(directory.file("a"), "\x80\x04N.");
  CHECK(error_for(directory.file("a")).find("expected a file of torch.save") != std::string::npos);
}

TEST_CASE("shards are put together as their index says") {
  const TemporaryDirectory directory;
  const std::string index = directory.file("model.safetensors.index.json");
  save_safetensors(directory.file("model-1.safetensors"), {{"a", Tensor::ones({2})}, {"b", Tensor::zeros({1})}});
  save_safetensors(directory.file("model-2.safetensors"), {{"c", Tensor::ones({3})}});
  const auto write = [&](const std::string& map) {
    write_bytes(index, R"({"metadata": {"total_size": 24}, "weight_map": {)" + map + "}}");
  };
  write(R"("c": "model-2.safetensors", "a": "model-1.safetensors")");
  const WeightsFile file = load_weights(index);
  CHECK(file.format == WeightsFormat::safetensors_index);
  REQUIRE(file.tensors.size() == 2);
  CHECK(file.tensors[1].first == "c");
  CHECK(file.tensors[1].second.shape() == Shape{3});
  write(R"("d": "model-2.safetensors")");
  CHECK(error_for(index).find("the tensor \"d\" is not in \"model-2.safetensors\"") != std::string::npos);
  write(R"("d": "model-3.safetensors")");
  CHECK(error_for(index).find("model-3.safetensors: cannot be opened") != std::string::npos);
  write(R"("d": "../model-2.safetensors")");
  CHECK(error_for(index).find("a file next to the index") != std::string::npos);
  write(R"("d": 5)");
  CHECK(error_for(index).find("expected the file name") != std::string::npos);
  write_bytes(index, "{\"a\": 1}");
  CHECK(error_for(index).find("with a weight_map") != std::string::npos);
  write_bytes(index, "{\"weight_map\": ");
  CHECK(error_for(index).find("model.safetensors.index.json: ") != std::string::npos);
}

TEST_CASE("numbers that are not finite are found by name, of every dtype") {
  const auto error = [](const NamedTensors& tensors) {
    return error_of<FormatError>([&] { return require_finite("f", tensors), 0; });
  };
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(error({{"a", Tensor::ones({3})}, {"b", Tensor::ones({2}, {.dtype = DType::i64})}, {"c", {}}}) == "no error");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    Tensor bad = Tensor::ones({5}, {.dtype = dtype});
    bad.narrow(0, 4, 1).fill_(-infinity);
    Tensor worse = Tensor::ones({2, 2}, {.dtype = dtype});
    worse.narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    CHECK(error({{"a", bad}, {"b", Tensor::ones({1})}, {"c", worse.transpose(0, 1)}}) ==
          "f: expected finite numbers, got others in a, c");
  }
}
