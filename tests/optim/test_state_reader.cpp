#include "optim/state_reader.hpp"

#include <doctest/doctest.h>

#include <limits>

using namespace polyphase;

namespace {

const OptimizerState kState{{{"w", Tensor::from_vector<float>({1, 2})}},
                            {{"n", 3}, {"half", 0.5}, {"huge", 1e300}, {"minus", -1}}};
const StateReader kReader("Owner", kState);

}  // namespace

TEST_CASE("state reader: numbers and counts") {
  CHECK(kReader.has_number("n"));
  CHECK_FALSE(kReader.has_number("w"));
  CHECK(kReader.number("half") == 0.5);
  CHECK(kReader.count("n") == 3);
  CHECK_THROWS_WITH_AS((void)kReader.number("x"), "Owner::load_state: the number \"x\" is missing", Error);
  CHECK_THROWS_WITH_AS((void)kReader.count("half"), "Owner::load_state: expected \"half\" to be a whole number >= 0, got 0.5",
                       Error);
  CHECK_THROWS_WITH_AS((void)kReader.count("huge"),
                       "Owner::load_state: expected \"huge\" to be a whole number >= 0, got 1e+300", Error);
  CHECK_THROWS_WITH_AS((void)kReader.count("minus"), "Owner::load_state: expected \"minus\" to be a whole number >= 0, got -1",
                       Error);
  const OptimizerState not_a_number{{}, {{"n", std::numeric_limits<double>::quiet_NaN()}}};
  CHECK_THROWS_AS((void)StateReader("Owner", not_a_number).count("n"), Error);
}

TEST_CASE("state reader: tensors come as copies in the dtype wanted") {
  const Tensor like = Tensor::zeros({2}, {.dtype = DType::f64});
  Tensor copy = kReader.tensor("w", like);
  CHECK(copy.to_vector<double>() == std::vector<double>{1, 2});
  copy.fill_(9);
  CHECK(kState.tensors[0].second.to_vector<float>() == std::vector<float>{1, 2});
  CHECK_THROWS_WITH_AS((void)kReader.tensor("v", like), "Owner::load_state: the tensor \"v\" is missing", Error);
  CHECK_THROWS_WITH_AS((void)kReader.tensor("w", Tensor::zeros({3})),
                       "Owner::load_state: expected \"w\" of shape (3,), got (2,)", Error);
}

TEST_CASE("state reader: what is too much is noticed") {
  kReader.expect_size(1, 4);
  CHECK_THROWS_WITH_AS(kReader.expect_size(1, 3), "Owner::load_state: expected 1 tensors and 3 numbers, got 1 and 4", Error);
  CHECK_THROWS_WITH_AS(kReader.expect_size(0, 4), "Owner::load_state: expected 0 tensors and 4 numbers, got 1 and 4", Error);
}
