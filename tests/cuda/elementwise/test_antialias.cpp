#include "cuda/elementwise/antialias.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "cuda/cuda.hpp"
#include "layers/activations.hpp"
#include "layers/antialiased_activation.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/antialias_formula.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// Tolerances, as on the host: one rounding of the result, and the arithmetic before it.
double rounding_of(DType dtype) { return dtype == DType::f16 ? kHalfUnit : dtype == DType::bf16 ? kBFloat16Unit : 0; }
double arithmetic_of(DType dtype) { return dtype == DType::f64 ? kDoubleRounding : 2 * kFloatFunction; }

AntialiasedSnake there(const AntialiasedSnake& in) {
  return {mirrored(in.x), mirrored(in.alpha), mirrored(in.beta), mirrored(in.up), mirrored(in.down)};
}

void check_all(const Shape& shape, DType dtype, DType parameters, std::int64_t misalignment) {
  CAPTURE(shape);
  CAPTURE(dtype);
  CAPTURE(parameters);
  CAPTURE(misalignment);
  const AntialiasedOperands operands = antialiased_operands(shape, dtype, parameters), exact = in_f64(operands);
  const AntialiasedFormula expected = antialiased_formula(exact.in, exact.g);
  const auto target = [&](const Tensor& like) { return mirrored(poisoned(like.shape(), like.dtype(), misalignment)); };
  const AntialiasedSnake in = there(operands.in);
  const Tensor g = mirrored(operands.g), y = target(operands.in.x);
  gpu().antialiased_snake(y, in);
  CHECK(worst_difference(expected.y, y) <= rounding_of(dtype) + arithmetic_of(dtype));
  const AntialiasedSnakeGradients all{target(operands.in.x), target(operands.in.alpha), target(operands.in.beta)};
  gpu().antialiased_snake_backward(all, in, g);
  CHECK(worst_difference(expected.x, all.x) <= rounding_of(dtype) + 2 * arithmetic_of(dtype));
  CHECK(sum_error(all.alpha, expected.alpha, expected.alpha_size, rounding_of(parameters)) <= arithmetic_of(dtype));
  CHECK(sum_error(all.beta, expected.beta, expected.beta_size, rounding_of(parameters)) <= arithmetic_of(dtype));
  // The same bits on a second call, and when only some gradients are requested.
  const auto bits = [](const Tensor& tensor) { return tensor.to(DType::f64).cpu().to_vector<double>(); };
  const AntialiasedSnakeGradients x{target(operands.in.x), {}, {}}, alpha{{}, target(operands.in.alpha), {}},
      beta{{}, {}, target(operands.in.beta)};
  for (const AntialiasedSnakeGradients* some : {&x, &alpha, &beta}) gpu().antialiased_snake_backward(*some, in, g);
  CHECK(bits(x.x) == bits(all.x));
  CHECK(bits(alpha.alpha) == bits(all.alpha));
  CHECK(bits(beta.beta) == bits(all.beta));
}

}  // namespace

TEST_CASE("an activation at twice the rate in one pass on the GPU: lengths, dtypes, alignments") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const std::int64_t length : kAntialiasLengths)
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t misalignment : {0, 1}) check_all({2, 3, length}, dtype, dtype, misalignment);
  for (const DType dtype : {DType::f16, DType::bf16}) check_all({2, 3, 1030}, dtype, DType::f32, 0);
  check_all({1, 2, 1030}, DType::f32, DType::f64, 0);
  check_all({300, 5, 8}, DType::f32, DType::f32, 0);
  check_all({1, 1, 200000}, DType::f32, DType::f32, 0);
}

TEST_CASE("an activation at twice the rate of no samples on the GPU") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const AntialiasedOperands none = antialiased_operands({0, 3, 60}, DType::f32, DType::f32);
  const AntialiasedSnakeGradients out{mirrored(none.in.x), mirrored(none.in.alpha), mirrored(none.in.beta)};
  gpu().antialiased_snake(out.x, there(none.in));
  gpu().antialiased_snake_backward(out, there(none.in), mirrored(none.g));
  CHECK(out.alpha.cpu().to_vector<float>() == std::vector<float>(3, 0.0F));
  CHECK(out.beta.cpu().to_vector<float>() == std::vector<float>(3, 0.0F));
}

TEST_CASE("a training step of an activation at twice the rate in a graph") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const DeviceGuard device(Device::cuda());
  AntialiasedActivation act(SnakeBeta(5, {.alpha_logscale = true}));
  const Tensor x = random_f64({2, 5, 3000}).to(DType::f32);
  Tensor y;
  const auto work = [&] {
    act.zero_grad();
    y = act(x);
    sum(y * y).backward();
  };
  work();
  const std::vector<float> eager = y.detach().to_vector<float>(), gradient = act.parameters()[0].grad().to_vector<float>();
  cuda::Graph graph = cuda::capture(work);
  graph.replay();
  CHECK(y.detach().to_vector<float>() == eager);
  CHECK(act.parameters()[0].grad().to_vector<float>() == gradient);
}
