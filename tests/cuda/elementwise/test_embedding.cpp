#include "cuda/elementwise/embedding.hpp"

#include <doctest/doctest.h>

#include "ops/elementwise.hpp"
#include "ops/embedding.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("sums of up to many tables have the host's bits") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const std::int64_t Q : {1, 4, 5, 9, 64, 68, 130})
      for (const bool divides : {true, false}) {
        CAPTURE(dtype);
        CAPTURE(Q);
        CAPTURE(divides);
        std::vector<EmbeddingTable> tables, device_tables;
        for (std::int64_t q = 0; q < Q; ++q) {
          EmbeddingTable table{random_f64({5 + q, 33}, static_cast<std::uint64_t>(q)).to(dtype)};
          if (divides && q % 3 != 1) table.usage = uniform_f64({5 + q}, -0.2, 9, 7).to(dtype);
          device_tables.push_back({mirrored(table.rows), table.usage.defined() ? mirrored(table.usage) : Tensor()});
          tables.push_back(table);
        }
        const Tensor codes = (uniform_f64({2, 7, Q}, 0, 4.99)).to(DType::i64).transpose(1, 2);
        const Tensor out = poisoned({2, 7, 33}, dtype), device_out = mirrored(out);
        host().embed(out, codes, tables, 1e-5);
        gpu().embed(device_out, mirrored(codes), device_tables, 1e-5);
        CHECK(different(out, device_out) == 0);
      }
}

TEST_CASE("a code outside its table is reported by the next call that waits") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const auto on_gpu = [](const Tensor& tensor) { return tensor.to(Device::cuda()); };
  const std::vector<Tensor> weights{on_gpu(random_f64({5, 3})), on_gpu(random_f64({3, 3}))};
  const Tensor codes = on_gpu(Tensor::from_vector<std::int64_t>({4, 3}, {1, 2, 1}));
  CHECK(error_of<ShapeError>([&] { return embedding_sum(codes, weights).to_vector<double>(); }) ==
        "index_select: expected positions in [0, 3), got 3 (on cuda:0, in an earlier call)");
  const std::vector<Tensor> many(6, weights[1]);
  std::vector<std::int64_t> wrong(6, 2);
  wrong[4] = -1;
  CHECK(error_of<ShapeError>([&] {
          return embedding_sum(on_gpu(Tensor::from_vector<std::int64_t>(wrong, {1, 6, 1})), many).to_vector<double>();
        }) == "index_select: expected positions in [0, 3), got -1 (on cuda:0, in an earlier call)");
  CHECK(embedding_sum(codes.narrow(1, 0, 1), {weights[0]}).to_vector<double>().size() == 3);
}
