#include "optim/clip.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

Tensor with_grad(const std::vector<double>& grad) {
  Tensor parameter = Tensor::zeros({static_cast<std::int64_t>(grad.size())}, {.dtype = DType::f64, .requires_grad = true});
  parameter.set_grad(Tensor::from_vector(grad));
  return parameter;
}

}  // namespace

TEST_CASE("clip: a large norm is brought to max_norm, over all parameters together") {
  const std::vector<Tensor> parameters{with_grad({3, 0}), with_grad({4}), Tensor::zeros({2}, {.requires_grad = true})};
  CHECK(clip_grad_norm(parameters, 1) == 5);
  const double scale = 1 / (5 + 1e-6);
  CHECK(parameters[0].grad().to_vector<double>()[0] == doctest::Approx(3 * scale).epsilon(testing::kDoubleRounding));
  CHECK(parameters[1].grad().item() == doctest::Approx(4 * scale).epsilon(testing::kDoubleRounding));
  CHECK_FALSE(parameters[2].grad().defined());
  CHECK(clip_grad_norm(parameters, 1) == doctest::Approx(1));
}

TEST_CASE("clip: a norm just above max_norm is scaled, too") {
  const std::vector<Tensor> parameters{with_grad({3, 4})};
  CHECK(clip_grad_norm(parameters, 4) == 5);
  CHECK(parameters[0].grad().to_vector<double>()[1] == doctest::Approx(4 * 4 / (5 + 1e-6)).epsilon(testing::kDoubleRounding));
}

TEST_CASE("clip: a small norm is left alone, dtypes may be mixed") {
  Tensor single = Tensor::zeros({1}, {.requires_grad = true});
  single.set_grad(Tensor::full({1}, 4));
  const std::vector<Tensor> parameters{with_grad({3}), single};
  CHECK(clip_grad_norm(parameters, 10) == 5);
  CHECK(parameters[0].grad().item() == 3);
  CHECK(single.grad().item() == 4);
  CHECK(single.grad().dtype() == DType::f32);
}

TEST_CASE("clip: without any gradient the norm is 0") {
  CHECK(clip_grad_norm({}, 1) == 0);
  CHECK(clip_grad_norm({Tensor::zeros({2}, {.requires_grad = true})}, 1) == 0);
}

TEST_CASE("clip: errors leave the gradients as they were") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Tensor> parameters{with_grad({3, infinity})};
  CHECK_THROWS_WITH_AS(clip_grad_norm(parameters, 1, {.error_if_nonfinite = true}),
                       "clip_grad_norm: the norm of the gradients is inf", Error);
  CHECK(parameters[0].grad().to_vector<double>() == std::vector<double>{3, infinity});
  CHECK_THROWS_WITH_AS(clip_grad_norm(parameters, 0), "clip_grad_norm: expected max_norm > 0, got 0", ShapeError);
  CHECK(clip_grad_norm(parameters, 1) == infinity);
  CHECK(parameters[0].grad().to_vector<double>()[0] == 0);
}
