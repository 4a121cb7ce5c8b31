#include "autograd/gradcheck.hpp"

#include <doctest/doctest.h>

#include "autograd/node.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using autograd::Gradients;
using autograd::Needs;
using autograd::Saved;

namespace {

// x^2 with the gradient factor*x.
Tensor squared(const Tensor& x, double factor) {
  return autograd::record("squared", square(x.detach()), {x}, [saved = Saved(x), factor](const Tensor& g, Needs) {
    return Gradients{mul(mul(g, saved.get()), factor)};
  });
}

std::string check_factor(double factor) {
  return gradcheck([factor](const std::vector<Tensor>& in) { return squared(in[0], factor); }, {leaf_f64({2, 3})});
}

}  // namespace

TEST_CASE("right gradients pass, wrong ones are named") {
  CHECK(check_factor(2) == "");
  const std::string text = check_factor(2.01);
  CHECK(text.find("input 0, index (") == 0);
  CHECK(text.find("analytic") != std::string::npos);
  CHECK(text.find("numeric") != std::string::npos);
}

TEST_CASE("a gradient that is missing, or NaN, is found") {
  const auto lost = [](const std::vector<Tensor>& in) { return square(in[0].detach()); };
  CHECK(gradcheck(lost, {leaf_f64({2})}) != "");
  CHECK(check_factor(std::numeric_limits<double>::quiet_NaN()).find("analytic nan") != std::string::npos);
}

TEST_CASE("a wrong gradient of one element of the second input is named by its place") {
  const Tensor spoiled = Tensor::from_vector<double>({0, 0, 1, 0}, {2, 2});
  const auto function = [&](const std::vector<Tensor>& in) {
    const Tensor out = add(in[0].detach(), in[1].detach());
    return autograd::record("spoiled", out, {in[0], in[1]}, [&](const Tensor& g, Needs) {
      return Gradients{g, add(g, spoiled)};
    });
  };
  CHECK(gradcheck(function, {leaf_f64({2, 2}, 1), leaf_f64({2, 2}, 2)}).find("input 1, index (1, 0)") == 0);
}

TEST_CASE("inputs are left as they were") {
  const Tensor x = leaf_f64({3});
  const Tensor constant = random_f64({3}, 2);
  const std::vector<double> before = x.to_vector<double>();
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return in[0] * in[1]; }, {x, constant}) == "");
  CHECK(x.to_vector<double>() == before);
  CHECK_FALSE(x.grad().defined());

  int calls = 0;
  const auto throws_at_second = [&](const std::vector<Tensor>& in) {
    require<Error>(++calls < 2, "no more");
    return exp(in[0]);
  };
  CHECK(error_of<Error>([&] { return gradcheck(throws_at_second, {x}); }) == "no more");
  CHECK(x.to_vector<double>() == before);
}

TEST_CASE("strided inputs and rank 0 are checked too") {
  const Tensor wide = random_f64({3, 4});
  Tensor strided = wide.transpose(0, 1).slice(0, 0, 4, 2);
  strided.set_requires_grad(true);
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return exp(in[0]); }, {strided}) == "");
  CHECK(gradcheck([](const std::vector<Tensor>& in) { return sin(in[0]); }, {leaf_f64({})}) == "");
}

TEST_CASE("only f64 is accepted") {
  const Tensor x = Tensor::ones({2}, {.requires_grad = true});
  CHECK(error_of<DTypeError>([&] { return gradcheck([](const std::vector<Tensor>& in) { return in[0]; }, {x}); }) ==
        "gradcheck: expected inputs of f64, got f32");
}
