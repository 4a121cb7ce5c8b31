#include "optim/clip.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu/threads.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;

namespace {

Tensor with_grad(const std::vector<double>& grad) {
  Tensor parameter = Tensor::zeros({static_cast<std::int64_t>(grad.size())}, {.dtype = DType::f64, .requires_grad = true});
  parameter.set_grad(Tensor::from_vector(grad));
  return parameter;
}

}  // namespace

TEST_CASE("clip: a large norm is reduced to max_norm, over all parameters together") {
  const std::vector<Tensor> parameters{with_grad({3, 0}), with_grad({4}), Tensor::zeros({2}, {.requires_grad = true})};
  CHECK(clip_grad_norm(parameters, 1).item() == 5);
  const double scale = 1 / (5 + 1e-6);
  CHECK(parameters[0].grad().to_vector<double>()[0] == doctest::Approx(3 * scale).epsilon(testing::kDoubleRounding));
  CHECK(parameters[1].grad().item() == doctest::Approx(4 * scale).epsilon(testing::kDoubleRounding));
  CHECK_FALSE(parameters[2].grad().defined());
  CHECK(clip_grad_norm(parameters, 1).item() == doctest::Approx(1));
}

TEST_CASE("clip: a norm just above max_norm is scaled, too") {
  const std::vector<Tensor> parameters{with_grad({3, 4})};
  CHECK(clip_grad_norm(parameters, 4).item() == 5);
  CHECK(parameters[0].grad().to_vector<double>()[1] == doctest::Approx(4 * 4 / (5 + 1e-6)).epsilon(testing::kDoubleRounding));
}

TEST_CASE("clip: a small norm is left alone, dtypes may be mixed") {
  Tensor single = Tensor::zeros({1}, {.requires_grad = true});
  single.set_grad(Tensor::full({1}, 4));
  const std::vector<Tensor> parameters{with_grad({3}), single};
  CHECK(clip_grad_norm(parameters, 10).item() == 5);
  CHECK(parameters[0].grad().item() == 3);
  CHECK(single.grad().item() == 4);
  CHECK(single.grad().dtype() == DType::f32);
}

TEST_CASE("clip: without any gradient the norm is 0") {
  CHECK(clip_grad_norm({}, 1).item() == 0);
  CHECK(clip_grad_norm({Tensor::zeros({2}, {.requires_grad = true})}, 1).item() == 0);
}

TEST_CASE("clip: errors leave the gradients as they were") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Tensor> parameters{with_grad({3, infinity})};
  CHECK_THROWS_WITH_AS(clip_grad_norm(parameters, 1, {.error_if_nonfinite = true}),
                       "clip_grad_norm: the norm of the gradients is inf", Error);
  CHECK(parameters[0].grad().to_vector<double>() == std::vector<double>{3, infinity});
  CHECK_THROWS_WITH_AS(clip_grad_norm(parameters, 0), "clip_grad_norm: expected max_norm > 0, got 0", ShapeError);
  CHECK(clip_grad_norm(parameters, 1).item() == infinity);
  CHECK(parameters[0].grad().to_vector<double>()[0] == 0);
}

TEST_CASE("clip: the norm stays on the gradients' device, in f64, and the gradients keep their place") {
  const std::vector<Tensor> parameters{with_grad({6, 8})};
  const Tensor before = parameters[0].grad();
  const std::uint64_t version = before.storage().version();
  const Tensor norm = clip_grad_norm(parameters, 5);
  CHECK(norm.dtype() == DType::f64);
  CHECK(norm.shape() == Shape{});
  CHECK(norm.device() == before.device());
  CHECK(before.is_same(parameters[0].grad()));
  CHECK(before.storage().version() > version);
  CHECK(before.to_vector<double>()[0] == doctest::Approx(3).epsilon(testing::kFloatRounding));
}

TEST_CASE("clip: gradients of any strides, and none at all in some parameters") {
  const Tensor wide = Tensor::zeros({2, 2}, {.dtype = DType::f64, .requires_grad = true});
  wide.set_grad(Tensor::from_vector<double>({1, 2, 4, 2}, {2, 2}).transpose(0, 1));
  const Tensor empty = Tensor::zeros({0, 3}, {.requires_grad = true});
  empty.set_grad(Tensor::zeros({0, 3}));
  CHECK(clip_grad_norm({wide, empty}, 1).item() == 5);
  CHECK(wide.grad().to_vector<double>()[1] == doctest::Approx(4.0 / 5).epsilon(testing::kFloatRounding));
  CHECK(clip_grad_norm({empty}, 1).item() == 0);
}

TEST_CASE("clip: hundreds of parameters of many sizes have the norm of all their elements") {
  std::vector<Tensor> parameters;
  double squares = 0;
  for (std::int64_t i = 0; i < 300; ++i) {
    const std::int64_t size = i == 5 ? 70001 : 1 + i * 13 % 301;
    Tensor parameter = Tensor::zeros({size}, {.requires_grad = true});
    parameter.set_grad(testing::random_f64({size}, static_cast<std::uint64_t>(i)).to(DType::f32));
    for (const float g : parameter.grad().to_vector<float>()) squares += static_cast<double>(g) * g;
    parameters.push_back(parameter);
  }
  const int threads = num_threads();
  std::vector<double> norms;  // the same bits with one and several threads
  for (const int count : {1, 2, 3}) {
    set_num_threads(count);
    norms.push_back(clip_grad_norm(parameters, std::numeric_limits<double>::infinity()).item());
  }
  set_num_threads(threads);
  CHECK(norms == std::vector<double>(3, norms[0]));
  const float first = parameters[299].grad().to_vector<float>()[0];
  CHECK(clip_grad_norm(parameters, 1).item() == doctest::Approx(std::sqrt(squares)).epsilon(testing::kDoubleSum));
  CHECK(parameters[299].grad().to_vector<float>()[0] ==
        doctest::Approx(first / std::sqrt(squares)).epsilon(testing::kFloatRounding));
  CHECK(clip_grad_norm(parameters, 2).item() == doctest::Approx(1).epsilon(testing::kFloatRounding));
}
