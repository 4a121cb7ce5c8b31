#include "cuda/reduce/weight_norm.hpp"

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "ops/elementwise.hpp"
#include "support/device.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("weights, norms and gradients agree with f64 on the host, of one column and of many, also in large and small rows") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Shape& shape : {Shape{1, 1}, Shape{512, 7}, Shape{33, 5, 11}, Shape{3, 1000, 11}, Shape{2000, 16}})
      for (const double magnitude : {1.0, 1e-12, 1e12}) {
        CAPTURE(dtype);
        CAPTURE(shape);
        CAPTURE(magnitude);
        Shape kept = Shape::filled(shape.rank(), 1);
        kept[0] = shape[0];
        const Tensor v = (random_f64(shape, 1) * magnitude).to(dtype), dw = random_f64(shape, 2).to(dtype);
        const Tensor g = uniform_f64(kept, 0.5, 2, 3).to(dtype);
        const auto wide = [](const Tensor& tensor) { return tensor.to(DType::f64); };
        const Tensor w = poisoned(shape, DType::f64), norms = poisoned(kept, DType::f64);
        const Tensor dv = poisoned(shape, DType::f64), dg = poisoned(kept, DType::f64);
        host().weight_norm(std::array{NormalizedWeight{w, norms, wide(v), wide(g)}});
        host().weight_norm_backward(std::array{NormalizedWeightGradient{dv, dg, wide(dw), wide(v), wide(g), norms}});
        const auto target = [&](const Shape& of) { return mirrored(poisoned(of, dtype)); };
        const Tensor v_there = mirrored(v), g_there = mirrored(g), dw_there = mirrored(dw);
        const Tensor w_there = target(shape), norms_there = target(kept), dv_there = target(shape), dg_there = target(kept);
        gpu().weight_norm(std::array{NormalizedWeight{w_there, norms_there, v_there, g_there}});
        gpu().weight_norm_backward(
            std::array{NormalizedWeightGradient{dv_there, dg_there, dw_there, v_there, g_there, norms_there}});
        const double bound = dtype == DType::f32 ? 8 * kFloatRounding : 32 * kDoubleRounding;
        CHECK(relative_to_largest(w, w_there) <= bound);
        CHECK(relative_to_largest(norms, norms_there) <= bound);
        // A row of one number has dv = 0: a difference of equal numbers.
        if (shape.numel() > shape[0]) CHECK(relative_to_largest(dv, dv_there) <= bound);
        CHECK(relative_to_largest(dg, dg_there) <= 4 * bound);
      }
}

TEST_CASE("f32 has the bits of the separate operations where their sums round alike: whole numbers") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Shape shape{64, 48, 3}, kept{64, 1, 1};
  const Tensor v = counting(shape, DType::f32), dw = counting(shape, DType::f32) * 0.5;
  const Tensor g = uniform_f64(kept, 0.5, 2, 3).to(DType::f32);
  const Tensor w = poisoned(shape, DType::f32), norms = poisoned(kept, DType::f32), dv = poisoned(shape, DType::f32),
               dg = poisoned(kept, DType::f32);
  const Tensor w_there = mirrored(w), norms_there = mirrored(norms), dv_there = mirrored(dv), dg_there = mirrored(dg);
  host().weight_norm(std::array{NormalizedWeight{w, norms, v, g}});
  host().weight_norm_backward(std::array{NormalizedWeightGradient{dv, dg, dw, v, g, norms}});
  const Tensor v_there = mirrored(v), g_there = mirrored(g);
  gpu().weight_norm(std::array{NormalizedWeight{w_there, norms_there, v_there, g_there}});
  gpu().weight_norm_backward(
      std::array{NormalizedWeightGradient{dv_there, dg_there, mirrored(dw), v_there, g_there, norms_there}});
  CHECK(different(w, w_there) == 0);
  CHECK(different(norms, norms_there) == 0);
  CHECK(different(dv, dv_there) == 0);
  CHECK(different(dg, dg_there) == 0);
}

TEST_CASE("weights and their gradients in 16 bits: those of f32, rounded") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Shape shape{40, 24, 5}, kept{40, 1, 1};
  const Tensor v = mirrored(random_f64(shape, 1).to(DType::f32)), g = mirrored(uniform_f64(kept, 0.5, 2, 3).to(DType::f32));
  const auto target = [](const Shape& of, DType dtype) { return mirrored(poisoned(of, dtype)); };
  const Tensor wide = target(shape, DType::f32), norms = target(kept, DType::f32);
  gpu().weight_norm(std::array{NormalizedWeight{wide, norms, v, g}});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(dtype);
    const Tensor w = target(shape, dtype);
    gpu().weight_norm(std::array{NormalizedWeight{w, norms, v, g}});
    CHECK(max_difference(w.cpu(), wide.cpu().to(dtype)) == 0);
    const Tensor dw = mirrored(random_f64(shape, 2).to(dtype));
    const Tensor dv = target(shape, DType::f32), dg = target(kept, DType::f32);
    const Tensor expected_dv = target(shape, DType::f32), expected_dg = target(kept, DType::f32);
    gpu().weight_norm_backward(std::array{NormalizedWeightGradient{dv, dg, dw, v, g, norms}});
    gpu().weight_norm_backward(std::array{NormalizedWeightGradient{expected_dv, expected_dg, dw.to(DType::f32), v, g, norms}});
    CHECK(max_difference(dv.cpu(), expected_dv.cpu()) == 0);
    CHECK(max_difference(dg.cpu(), expected_dg.cpu()) == 0);
  }
}

TEST_CASE("many weights of several dtypes in one call have the bits of one after the other") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  std::vector<NormalizedWeight> all;
  std::vector<Tensor> alone;
  for (int i = 0; i < 200; ++i) {  // more than a table holds
    const DType dtype = i % 7 == 0 ? DType::f64 : DType::f32;
    const DType of_w = dtype == DType::f64 || i % 3 == 0 ? dtype : i % 3 == 1 ? DType::f16 : DType::bf16;
    const Shape shape{i % 5 + 1, i % 11 + 1, 3}, kept{i % 5 + 1, 1, 1};
    const auto there = [&](const Tensor& tensor) { return mirrored(tensor.to(dtype)); };
    const NormalizedWeight one{mirrored(poisoned(shape, of_w)), mirrored(poisoned(kept, dtype)), there(random_f64(shape, 2)),
                               there(random_f64(kept, 3))};
    all.push_back(one);
    alone.push_back(mirrored(poisoned(shape, of_w)));
    gpu().weight_norm(std::array{NormalizedWeight{alone.back(), mirrored(poisoned(kept, dtype)), one.v, one.g}});
  }
  gpu().weight_norm(all);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(different(alone[i].cpu(), all[i].w) == 0);
}
