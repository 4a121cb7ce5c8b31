#include "distributed/network/ring.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "distributed/network/ring_transfer.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/ranks.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

// Small integers of a rank, so that sums are exact in every dtype.
Tensor numbers(std::int64_t count, int rank, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((i * 7 + rank * 13) % 23 - 11));
  return Tensor::from_vector(values, {count}).to(dtype);
}

Tensor sum_of_all(std::int64_t count, int world, DType dtype) {
  Tensor sum = numbers(count, 0, dtype);
  for (int r = 1; r < world; ++r) sum += numbers(count, r, dtype);
  return sum;
}

bool same(const Tensor& a, const Tensor& b) { return max_difference(a, b) == 0; }

void check_collectives(Group& group, std::int64_t count, DType dtype) {
  Communicator& ring = group.communicator();
  const int world = group.world(), rank = group.rank();
  const Tensor sum = numbers(count, rank, dtype);
  ring.all_reduce(sum, Combine::sum, "sum").wait();
  RANK_CHECK(same(sum, sum_of_all(count, world, dtype)));
  if (is_floating_point(dtype)) {
    const Tensor mean = numbers(count, rank, dtype);
    ring.all_reduce(mean, Combine::average, "mean").wait();
    RANK_CHECK(same(mean, sum_of_all(count, world, dtype) * (1.0 / world)));
  }
  const Tensor shares = numbers(count * world, rank, dtype);
  ring.reduce_scatter(shares, Combine::sum, "shares").wait();
  const auto own = [&](const Tensor& tensor) { return tensor.narrow(0, count * rank, count); };
  RANK_CHECK(same(own(shares), own(sum_of_all(count * world, world, dtype))));
  ring.all_gather(shares, "gather").wait();
  RANK_CHECK(same(shares, sum_of_all(count * world, world, dtype)));
  for (int root = 0; root < world; ++root) {
    const Tensor values = numbers(count, rank, dtype);
    ring.broadcast(values, root, "broadcast").wait();
    RANK_CHECK(same(values, numbers(count, root, dtype)));
  }
}

std::vector<std::uint64_t> bits_of(const Tensor& tensor) {
  std::vector<std::uint64_t> bits;
  for (const double value : tensor.to(DType::f64).to_vector<double>()) bits.push_back(std::bit_cast<std::uint64_t>(value));
  return bits;
}

}  // namespace

TEST_CASE("ring: every operation of every dtype on 2, 3 and 4 ranks, sizes that world does not divide, and none") {
  for (const int world : {2, 3, 4})
    CHECK(run_ranks(world, [](Group group) {
            for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64})
              for (const std::int64_t count : {0, 1, 5, 100}) check_collectives(group, count, dtype);
            check_collectives(group, 300'001, DType::f32);
          }) == "");
}

TEST_CASE("ring: operations that were started are done in order, whatever is waited for first") {
  CHECK(run_ranks(3, [](Group group) {
          std::vector<Tensor> tensors;
          std::vector<Pending> pending;
          for (int i = 0; i < 20; ++i) {
            tensors.push_back(numbers(i * 1000, group.rank(), DType::f32));
            pending.push_back(group.communicator().all_reduce(tensors.back(), Combine::sum, "one of many"));
          }
          for (int i = 19; i >= 0; --i) {
            pending[static_cast<std::size_t>(i)].wait();
            RANK_CHECK(same(tensors[static_cast<std::size_t>(i)], sum_of_all(i * 1000, 3, DType::f32)));
          }
        }) == "");
}

TEST_CASE("ring: a sum has the same bits on all ranks, and reduce_scatter has all_reduce's") {
  CHECK(run_ranks(4, [](Group group) {
          Generator generator(static_cast<std::uint64_t>(group.rank()));
          const Tensor values = Tensor::randn({4000}, {}, &generator);
          const Tensor reduced = values.clone(), scattered = values.clone(), first = Tensor::zeros({4000});
          Communicator& ring = group.communicator();
          ring.all_reduce(reduced, Combine::average, "a").wait();
          ring.reduce_scatter(scattered, Combine::average, "b").wait();
          ring.all_gather(scattered, "c").wait();
          RANK_CHECK(bits_of(reduced) == bits_of(scattered));
          Tensor(first).copy_(reduced);
          ring.broadcast(first, 0, "d").wait();
          RANK_CHECK(bits_of(reduced) == bits_of(first));
        }) == "");
}

TEST_CASE("ring: ranks in different operations are named") {
  Job job(2, [](int rank) {
    Group group = init();
    const Tensor tensor = Tensor::zeros({rank == 0 ? 10 : 11});
    group.communicator().all_reduce(tensor, Combine::sum, "bucket 3").wait();
  });
  const std::vector<RankResult> results = job.wait();
  CHECK(results[0].code == 1);
  CHECK(results[1].code == 1);
  CHECK(results[0].text.find("all_reduce \"bucket 3\" of 11 elements of f32 (operation 0)") != std::string::npos);
  CHECK(results[0].text.find("all_reduce \"bucket 3\" of 10 elements of f32") != std::string::npos);
  CHECK(results[0].text.find("the ranks run different code or have different data") != std::string::npos);
}

TEST_CASE("ring: tensors that do not fit are refused before anything is sent") {
  CHECK(run_ranks(2, [](Group group) {
          Communicator& ring = group.communicator();
          const auto error_of = [](const auto& call) -> std::string {
            try {
              call();
            } catch (const Error& error) {
              return error.what();
            }
            return "no error";
          };
          RANK_CHECK(error_of([&] { (void)ring.all_gather(Tensor::zeros({3}), "x"); }) ==
                     "all_gather: expected a multiple of world=2 elements, got 3");
          RANK_CHECK(error_of([&] { (void)ring.broadcast(Tensor::zeros({3}), 2, "x"); }) ==
                     "broadcast: expected a root from 0 to 1, got 2");
          RANK_CHECK(error_of([&] {
                       (void)ring.all_reduce(Tensor::zeros({4, 2}).transpose(0, 1), Combine::sum, "x");
                     }) == "all_reduce: expected a contiguous tensor, got strides (1, 2)");
          RANK_CHECK(error_of([&] {
                       (void)ring.all_reduce(Tensor::zeros({4}, {.dtype = DType::i64}), Combine::average, "x");
                     }) == "all_reduce: expected floating point for an average, got i64");
        }) == "");
}

TEST_CASE("ring: segments differ by at most one element and cover all") {
  for (const std::int64_t count : {0, 1, 3, 10, 11})
    for (const int world : {1, 2, 3, 4}) {
      CHECK(segment_begin(count, world, 0) == 0);
      CHECK(segment_begin(count, world, world) == count);
      for (int i = 0; i < world; ++i) {
        const std::int64_t size = segment_begin(count, world, i + 1) - segment_begin(count, world, i);
        CHECK((size == count / world || size == count / world + 1));
      }
    }
}
