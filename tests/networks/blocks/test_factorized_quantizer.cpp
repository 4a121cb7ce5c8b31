#include "networks/blocks/factorized_quantizer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "autograd/autocast.hpp"
#include "ops/conv.hpp"
#include "ops/embedding.hpp"
#include "ops/length.hpp"
#include "ops/reduce.hpp"
#include "support/network_checks.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

using Codes = std::vector<std::int64_t>;
using Role = ResidualQuantizer::Role;

/// For each vector the table's row with the nearest direction, by a plain search.
Codes plain_nearest(const Tensor& projected, const Tensor& codebook) {
  const std::vector<double> z = f64_values(projected.transpose(1, 2).contiguous()), table = f64_values(codebook);
  const auto d = static_cast<std::size_t>(codebook.size(1));
  const auto cosine = [&](const double* a, const double* b) {
    double product = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < d; ++i) product += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    return product / std::sqrt(aa * bb);
  };
  Codes codes;
  for (std::size_t t = 0; t < z.size(); t += d) {
    std::size_t best = 0;
    for (std::size_t row = 0; row < table.size(); row += d)
      if (cosine(&z[t], &table[row]) > cosine(&z[t], &table[best])) best = row;
    codes.push_back(static_cast<std::int64_t>(best / d));
  }
  return codes;
}

ResidualQuantizer residual(Role role, std::vector<std::int64_t> strides = {}, std::size_t count = 3) {
  return ResidualQuantizer({.input_dim = 5,
                            .codebook_size = 16,
                            .codebook_dims = std::vector<std::int64_t>(count, 4),
                            .strides = std::move(strides),
                            .role = role});
}

}  // namespace

TEST_CASE("names: codebooks are buffers, in_proj is there to encode") {
  ResidualQuantizer decodes = residual(Role::decoder), encodes = residual(Role::encoder);
  CHECK(StateOf(decodes).size() == 3 * 3);
  CHECK(StateOf(encodes).size() == 3 * 5);
  CHECK(StateOf(encodes)["quantizers.2.in_proj.weight"].shape() == Shape{4, 5, 1});
  CHECK(StateOf(decodes)["quantizers.1.out_proj.weight"].shape() == Shape{5, 4, 1});
  CHECK(StateOf(decodes)["quantizers.0.codebook.weight"].shape() == Shape{16, 4});
  for (const auto& [name, tensor] : encodes.named_parameters()) CHECK(name.find("codebook") == name.npos);
}

TEST_CASE("a code stands for its row, projected") {
  manual_seed(1);
  FactorizedQuantizer quantizer({.input_dim = 6, .codebook_size = 9, .codebook_dim = 3});
  quantizer.to(DType::f64);
  const StateOf state(quantizer);
  const Tensor codes = random_codes({2, 7}, 9);
  const Tensor expected =
      conv1d(embedding(codes, state["codebook.weight"]).transpose(1, 2), state["out_proj.weight"], state["out_proj.bias"]);
  CHECK(max_difference(quantizer(codes), expected) == 0);
}

TEST_CASE("the nearest direction is chosen, in every dtype and in any number of vectors") {
  manual_seed(2);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(name_of(dtype));
    FactorizedQuantizer quantizer({.input_dim = 6, .codebook_size = 23, .codebook_dim = 3});
    quantizer.to(dtype);
    const auto encoded = quantizer.encode(random_f64({2, 6, 2500}).to(dtype));  // 5000 vectors, more than one block
    const Codes codes = encoded.codes.to_vector<std::int64_t>();
    const Codes expected = plain_nearest(encoded.projected, StateOf(quantizer)["codebook.weight"]);
    REQUIRE(codes.size() == expected.size());
    std::size_t apart = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) apart += codes[i] != expected[i];
    // In f32 the difference between two directions may be less than the rounding error.
    CHECK(apart <= (dtype == DType::f64 ? 0U : 2U));
    CHECK(max_difference(encoded.quantized, quantizer(encoded.codes)) == 0);
  }
}

TEST_CASE("an AutocastGuard projects in 16 bits and compares in f32") {
  manual_seed(7);
  FactorizedQuantizer quantizer({.input_dim = 6, .codebook_size = 200, .codebook_dim = 3});
  const AutocastGuard guard(DType::bf16);
  const auto encoded = quantizer.encode(random_f64({2, 6, 400}).to(DType::f32));
  CHECK(encoded.projected.dtype() == DType::bf16);
  const Codes codes = encoded.codes.to_vector<std::int64_t>();
  const Codes expected = plain_nearest(encoded.projected.detach(), StateOf(quantizer)["codebook.weight"]);
  std::size_t apart = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) apart += codes[i] != expected[i];
  CHECK(apart <= 2);
}

TEST_CASE("gradients pass straight through the choice, and codebooks have none") {
  manual_seed(3);
  FactorizedQuantizer quantizer({.input_dim = 4, .codebook_size = 8, .codebook_dim = 2});
  quantizer.to(DType::f64);
  const StateOf state(quantizer);
  const Tensor weights = random_f64({2, 4, 5}, 9);
  Tensor z = leaf_f64({2, 4, 5}), same = leaf_f64({2, 4, 5});
  sum(quantizer.encode(z).quantized * weights).backward();
  const Tensor projected = conv1d(same, state["in_proj.weight"], state["in_proj.bias"]);
  sum(conv1d(projected, state["out_proj.weight"], state["out_proj.bias"]) * weights).backward();
  CHECK(max_difference(z.grad(), same.grad()) < kDoubleRounding);
  CHECK(!state["codebook.weight"].requires_grad());
  for (const Tensor& parameter : quantizer.parameters()) CHECK(parameter.grad().defined());
}

TEST_CASE("codebooks of different strides: the sum of repeated vectors") {
  manual_seed(4);
  ResidualQuantizer quantizer = residual(Role::decoder, {4, 2, 1});
  quantizer.to(DType::f64);
  CHECK(quantizer.rows() == 7);
  CHECK(quantizer.positions_per_frame() == 4);
  const std::vector<Tensor> codes{random_codes({2, 3}, 16, 1), random_codes({2, 6}, 16, 2), random_codes({2, 12}, 16, 3)};
  const Tensor packed = quantizer.pack(codes);
  CHECK(packed.shape() == Shape{2, 7, 3});
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(quantizer.unpack(packed)[i].to_vector<std::int64_t>() == codes[i].to_vector<std::int64_t>());
  const StateOf state(quantizer);
  Tensor expected;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto of = [&](const char* name) { return state[concat("quantizers.", i, ".", name)]; };
    const Tensor v =
        conv1d(embedding(codes[i], of("codebook.weight")).transpose(1, 2), of("out_proj.weight"), of("out_proj.bias"));
    const Tensor repeated = upsample1d(v, i == 0 ? 4 : i == 1 ? 2 : 1);
    expected = i == 0 ? repeated : expected + repeated;
  }
  CHECK(max_difference(quantizer(packed), expected) == 0);
}

TEST_CASE("the order of codes in a frame") {
  const ResidualQuantizer quantizer = residual(Role::decoder, {4, 2, 1});
  const auto row = [](const Codes& values) {
    return Tensor::from_vector(values, {1, static_cast<std::int64_t>(values.size())}, default_device());
  };
  const Tensor packed = quantizer.pack({row({1, 2}), row({3, 4, 5, 6}), row({7, 8, 9, 10, 11, 12, 13, 14})});
  CHECK(packed.select(0, 0).transpose(0, 1).contiguous().to_vector<std::int64_t>() ==
        Codes{1, 3, 4, 7, 8, 9, 10, 2, 5, 6, 11, 12, 13, 14});
}

TEST_CASE("each codebook takes what those before it left over") {
  manual_seed(5);
  ResidualQuantizer quantizer = residual(Role::encoder);
  quantizer.to(DType::f64);
  const Tensor z = random_f64({2, 5, 11});
  const auto encoded = quantizer.encode(z);
  CHECK(encoded.codes.shape() == Shape{2, 3, 11});
  CHECK(encoded.projected.shape() == Shape{2, 12, 11});
  CHECK(quantizer(z).to_vector<std::int64_t>() == encoded.codes.to_vector<std::int64_t>());
  const StateOf state(quantizer);
  const Tensor first = quantizer.decode(encoded.codes.narrow(1, 0, 1));  // fewer codebooks
  const Tensor projected = conv1d(z - first, state["quantizers.1.in_proj.weight"], state["quantizers.1.in_proj.bias"]);
  CHECK(max_difference(encoded.projected.narrow(1, 4, 4), projected) < kDoubleRounding);
  CHECK(max_difference(encoded.quantized, quantizer.decode(encoded.codes)) < kDoubleRounding);
}

TEST_CASE("streams: frames of codes, and vectors") {
  manual_seed(6);
  for (const DType dtype : {DType::f32, DType::f64}) {
    ResidualQuantizer decodes = residual(Role::decoder, {4, 2, 1}), encodes = residual(Role::encoder);
    decodes.to(dtype);
    encodes.to(dtype);
    check_stream_of(decodes, random_codes({2, 7, 90}, 16));
    check_stream_of(encodes, random_f64({2, 5, 90}).to(dtype));
  }
  ResidualQuantizer decodes = residual(Role::decoder, {4, 2, 1});
  CHECK(Stream(decodes).rate().up == 4);
  CHECK(receptive_field(decodes).is_causal());
}

TEST_CASE("what does not fit is refused in words") {
  ResidualQuantizer plain = residual(Role::decoder), strided = residual(Role::decoder, {4, 2, 1});
  const auto codes = [](const Shape& shape, std::int64_t value) {
    return Tensor::full(shape, static_cast<double>(value), {DType::i64});
  };
  if (default_device().is_cpu()) {
    CHECK(error_of<ShapeError>([&] {
            return plain(cat({codes({1, 1, 4}, 15), codes({1, 2, 4}, 16)}, 1));
          }) == "quantizer: expected codes in [0, 16) of codebook 1, got 16");
    CHECK(error_of<ShapeError>([&] { return plain(codes({1, 3, 4}, -1)); }).find("got -1") != std::string::npos);
  }
  CHECK(error_of<ShapeError>([&] {
          return plain(codes({1, 4, 4}, 0));
        }) == "quantizer: expected codes (N, 1 to 3, frames), got (1, 4, 4)");
  CHECK(error_of<ShapeError>([&] {
          return strided(codes({1, 3, 4}, 0));
        }) == "quantizer: expected codes (N, 7, frames), got (1, 3, 4)");
  CHECK(error_of<DTypeError>([&] { return plain(Tensor::ones({1, 3, 4})); }).find("i64") != std::string::npos);
  CHECK(error_of<Error>([&] { return plain.encode(Tensor::ones({1, 5, 4})).codes; }).find("in_proj") != std::string::npos);
  CHECK(error_of<ShapeError>([&] {
          return strided.pack({codes({1, 2}, 0), codes({1, 4}, 0), codes({1, 7}, 0)});
        }) == "quantizer: expected codes (1, 8) of codebook 2, got (1, 7)");
  CHECK(error_of<ShapeError>([&] {
          return strided.pack({codes({1, 2}, 0)});
        }).find("of 3 codebooks, got 1") != std::string::npos);
  CHECK(error_of<NotImplemented>([] { return residual(Role::encoder, {2, 1, 1}).rows(); }).find("got 2") != std::string::npos);
  CHECK(error_of<ShapeError>([] { return residual(Role::decoder, {2, 1}).rows(); }).find("got 2") != std::string::npos);
  CHECK(error_of<ShapeError>([] {
          return residual(Role::decoder, {65536, 3, 1}).rows();
        }).find("common multiple") != std::string::npos);
  CHECK(error_of<ShapeError>([] { return FactorizedQuantizer({.input_dim = 3}).options().input_dim; }) ==
        "FactorizedQuantizer: expected codebook_size >= 1, got 0");
}
