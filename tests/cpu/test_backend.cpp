#include "cpu/backend.hpp"

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "support/conv.hpp"
#include "support/helpers.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("the host's backend is one object with the host's allocator") {
  Backend& backend = cpu_backend();
  CHECK(&backend == &backend_of(Device::cpu()));
  CHECK(dynamic_cast<cpu::CpuBackend*>(&backend) != nullptr);
  const std::uint64_t before = backend.allocator().stats().allocations;
  const Tensor t = Tensor::zeros({100});
  CHECK(backend.allocator().stats().allocations > before);
}

TEST_CASE("bytes to and from the host") {
  const std::vector<float> from = {1, 2, 3};
  const Tensor t = Tensor::zeros({3});
  std::vector<float> back(3, 0);
  cpu_backend().copy_from_host(t.raw(), from.data(), 12);
  cpu_backend().copy_to_host(back.data(), t.raw(), 12);
  cpu_backend().copy_to_host(nullptr, nullptr, 0);
  cpu_backend().synchronize();
  CHECK(back == from);
}

TEST_CASE("an epilogue and its gradients are map() and reduce()") {
  ConvProblem p;
  p.N = 2, p.C_in = 3, p.C_out = 4, p.L_in = 9, p.K = 4, p.S = 2, p.P_l = p.P_r = 1;
  p = sized(p);
  const auto random = [](const Shape& shape, std::uint64_t seed) { return random_f64(shape, seed).to(DType::f32); };
  const Tensor x = random({2, 3, p.L_in}, 1), w = random({3, 4, 4}, 2), b = random({4}, 3);
  const Tensor alpha = uniform_f64({4}, 0.5, 2, 4).to(DType::f32), beta = uniform_f64({4}, 0.5, 2, 5).to(DType::f32);
  const Tensor sums = Tensor::empty({2, 4, p.L_out}), out = Tensor::empty(sums.shape()), expected = Tensor::empty(sums.shape());
  Backend& backend = cpu_backend();
  backend.conv_forward(p, x, w, b, sums, Algorithm::automatic, Precision::fp32);
  for (const Activation activation :
       {Activation::none, Activation::relu, Activation::leaky_relu, Activation::tanh, Activation::snake}) {
    backend.fill(out, std::numeric_limits<double>::quiet_NaN());
    const ConvEpilogue epilogue{activation, 0.25, alpha, beta};
    backend.conv_activated(p, ConvDirection::forward, x, w, b, out, {}, epilogue, Algorithm::automatic, Precision::fp32);
    if (activation == Activation::none) {
      CHECK(max_difference(out, sums) == 0);
    } else if (activation == Activation::snake) {
      const auto spread = [&](const Tensor& values) { return values.unsqueeze(1).expand(sums.shape()); };
      backend.map(MapOp::snake, expected, std::array{sums, spread(alpha), spread(beta)}, {});
      CHECK(max_difference(out, expected) == 0);
    } else {
      backend.map(map_op_of(activation), expected, std::array{sums}, {0.25, 0});
      CHECK(max_difference(out, expected) == 0);
    }
    // The activation's result scaled and added to the residual, and the activation's argument.
    const Tensor residual = random(sums.shape(), 6), before = Tensor::full(sums.shape(), 7), sum = Tensor::empty(sums.shape());
    backend.map(MapOp::add_scaled, sum, std::array{residual, activation == Activation::none ? sums : expected}, {0.3, 0});
    backend.fill(out, std::numeric_limits<double>::quiet_NaN());
    backend.conv_activated(p, ConvDirection::forward, x, w, b, out, {}, {activation, 0.25, alpha, beta, residual, 0.3, before},
                           Algorithm::automatic, Precision::fp32);
    CHECK(max_difference(out, sum) == 0);
    CHECK(max_difference(before, sums) == 0);
    if (activation == Activation::relu || activation == Activation::leaky_relu) {  // of the source
      const Tensor read = Tensor::empty(x.shape());
      backend.map(map_op_of(activation), read, std::array{x}, {0.25, 0});
      backend.conv_forward(p, read, w, b, expected, Algorithm::automatic, Precision::fp32);
      backend.conv_activated(p, ConvDirection::forward, x, w, b, out, {activation, 0.25}, {}, Algorithm::automatic,
                             Precision::fp32);
      CHECK(max_difference(out, expected) == 0);
      backend.map(map_op_of(activation), expected, std::array{sums}, {0.25, 0});
    }
    if (activation == Activation::snake) continue;
    CHECK_FALSE(backend.fuses(p, ConvDirection::forward, epilogue, Algorithm::automatic, Precision::fp32));
    if (activation != Activation::none) {  // the derivative instead of the activation
      const Tensor result = random(sums.shape(), 7);
      backend.map(derivative_of(activation), expected, std::array{result, sums}, {0.25, 0});
      backend.map(MapOp::add_scaled, sum, std::array{residual, expected}, {0.3, 0});
      const ConvEpilogue way_back{
          .activation = activation, .slope = 0.25, .residual = residual, .scale = 0.3, .derivative = result};
      backend.conv_activated(p, ConvDirection::forward, x, w, b, out, {}, way_back, Algorithm::automatic, Precision::fp32);
      CHECK(max_difference(out, sum) == 0);
    }
    backend.conv_activated(p, ConvDirection::forward, x, w, b, out, {}, epilogue, Algorithm::automatic, Precision::fp32);
    const Tensor in = Tensor::full(sums.shape(), 7), totals = Tensor::full({4}, 7), total = Tensor::empty({1, 4, 1});
    backend.activation_backward(epilogue, out, sums, in, totals);
    if (activation != Activation::none) backend.map(derivative_of(activation), expected, std::array{out, sums}, {0.25, 0});
    backend.reduce(ReduceOp::sum, total, activation == Activation::none ? sums : expected);
    CHECK(max_difference(in, activation == Activation::none ? Tensor::full(sums.shape(), 7) : expected) == 0);
    CHECK(max_difference(totals, total.reshape({4})) == 0);
  }
}

TEST_CASE("snake's gradient is map() and reduce()") {
  const Shape shape{2, 3, 11};
  const Tensor x = random_f64(shape, 1), g = random_f64(shape, 2);
  const Tensor alpha = uniform_f64({3}, 0.5, 2, 3), beta = uniform_f64({3}, 0.5, 2, 4);
  const auto spread = [&](const Tensor& values) { return values.unsqueeze(1).expand(shape); };
  const auto part = [&](MapOp op) {
    const Tensor out = Tensor::empty(shape, {.dtype = DType::f64});
    cpu_backend().map(op, out, std::array{x, spread(alpha), spread(beta), g}, {});
    return out;
  };
  const auto empty = [](const Shape& of) { return Tensor::full(of, 7, {.dtype = DType::f64}); };
  const SnakeGradients out{empty(shape), empty({3}), empty({3})};
  cpu_backend().snake_backward(x, alpha, beta, g, out);
  CHECK(max_difference(out.x, part(MapOp::snake_grad_x)) == 0);
  const auto sums = [&](MapOp op) {
    const Tensor total = empty({1, 3, 1});
    cpu_backend().reduce(ReduceOp::sum, total, part(op));
    return total.reshape({3});
  };
  CHECK(max_difference(out.alpha, sums(MapOp::snake_grad_alpha)) == 0);
  CHECK(max_difference(out.beta, sums(MapOp::snake_grad_beta)) == 0);

  const SnakeGradients sum{empty(shape), {}, {}, random_f64(shape, 5)};
  cpu_backend().snake_backward(x, alpha, beta, g, sum);
  const Tensor expected = empty(shape);
  cpu_backend().map(MapOp::add, expected, std::array{sum.added, out.x}, {});
  CHECK(max_difference(sum.x, expected) == 0);
}

TEST_CASE("convolutions are those of cpu/conv/conv.hpp, for every precision") {
  ConvProblem p;
  p.N = 2, p.C_in = 3, p.C_out = 4, p.L_in = 9, p.K = 4, p.S = 2, p.P_l = p.P_r = 1;
  const ConvArrays<float> arrays(sized(p), kSmallIntegers);
  const auto tensor = [](const Array<float>& array) {
    return Tensor::from_vector(std::vector<float>(array.data(), array.data() + array.size()));
  };
  const Tensor x = tensor(arrays.x), w = tensor(arrays.w), y = tensor(arrays.y), b = tensor(arrays.bias_out);
  for (const Precision precision : {Precision::ieee, Precision::fp32, Precision::tf32}) {
    const Tensor forward = Tensor::empty(y.shape()), dgrad = Tensor::empty(x.shape()), wgrad = Tensor::empty(w.shape());
    cpu_backend().conv_forward(arrays.p, x, w, b, forward, Algorithm::automatic, precision);
    cpu_backend().conv_dgrad(arrays.p, y, w, {}, dgrad, Algorithm::automatic, precision);
    cpu_backend().conv_wgrad(arrays.p, x, y, wgrad, Algorithm::automatic, precision);
    CHECK(max_difference(forward, tensor(arrays.run(ConvDirection::forward, Algorithm::reference))) == 0);
    CHECK(max_difference(dgrad, tensor(arrays.run(ConvDirection::dgrad, Algorithm::reference, false))) == 0);
    CHECK(max_difference(wgrad, tensor(arrays.run(ConvDirection::wgrad, Algorithm::reference))) == 0);
    CHECK(cpu_backend().can_implement(arrays.p, ConvDirection::forward, Algorithm::tensor_core, precision) ==
          cpu::can_implement(arrays.p, ConvDirection::forward, Algorithm::tensor_core));
  }
}
