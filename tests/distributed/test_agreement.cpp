#include "distributed/agreement.hpp"

#include <doctest/doctest.h>

#include "support/ranks.hpp"

using namespace polyphase;
using namespace polyphase::distributed;
using namespace polyphase::testing;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("agreement: rank 0's text and tensors reach all ranks, whatever their strides") {
  CHECK(run_ranks(3, [](Group group) {
          const bool first = group.is_first();
          RANK_CHECK(broadcast_text(group, first ? "eight or more" : "", "text") == "eight or more");
          RANK_CHECK(broadcast_text(group, "", "text").empty());
          const Tensor plain = Tensor::full({5}, first ? 3 : 0), turned = Tensor::full({2, 3}, first ? 4 : 0).transpose(0, 1);
          const Tensor whole = Tensor::full({}, first ? 5 : 0, {.dtype = DType::i64});
          broadcast_tensors(group, {{"a", plain}, {"b", turned}, {"c", whole}, {"d", Tensor::zeros({0})}});
          RANK_CHECK(plain.to_vector<float>() == std::vector<float>(5, 3));
          RANK_CHECK(turned.to_vector<float>() == std::vector<float>(6, 4));
          RANK_CHECK(whole.item<int>() == 5);
        }) == "");
}

TEST_CASE("agreement: the first line that differs is named, also one that is missing") {
  const auto error_of = [](const std::string& of_one) {
    return run_ranks(3, [&](Group group) { require_same_text(group, "files", group.rank() == 1 ? of_one : "a 1\nb 2\n"); });
  };
  CHECK(error_of("a 1\nb 2\n") == "");
  CHECK(contains(error_of("a 1\nb 3\n"), "files differ between ranks: it has b 3, rank 0 has b 2"));
  CHECK(contains(error_of("a 1\n"), "it has nothing more, rank 0 has b 2"));
  CHECK(contains(error_of("a 1\nb 2\nc\n"), "it has c, rank 0 has nothing more"));
}

TEST_CASE("agreement: one bit of one parameter is enough") {
  const auto error_of = [](int world, int guilty) {
    return run_ranks(world, [&](Group group) {
      const Tensor a = Tensor::ones({3}), b = Tensor::zeros({1001});
      if (group.rank() == guilty) b.data<float>()[1000] = -0.0F;
      require_same_bits(group, std::vector<Tensor>{a, b});
    });
  };
  CHECK(error_of(3, -1) == "");
  CHECK(contains(error_of(3, 0), "rank 0 on "));
  CHECK(contains(error_of(3, 2), "rank 2 on "));
  CHECK(contains(error_of(2, 1), "rank 1 on "));
}
