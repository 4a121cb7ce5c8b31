#include "cuda/conv/tensor_core/weights_in_registers/source_tma/source_tma.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/choice/kernels.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/weights_in_registers/source_tma/maps.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/reduced.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
using cuda::tensor_core::GatherKernel;
namespace tensor_core = cuda::tensor_core;

namespace {

/// All kinds of rows: whole lines of 128 bytes, whole sectors, 16 bytes, even, odd, shorter than a tile, shorter than a sector.
/// Groups, columns and rows that do not fill a tile, several chunks of rows, taps far apart.
std::vector<ConvProblem> boxes_problems() {
  return {
      sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 1024, .K = 5, .D = 3}),
      sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 700, .K = 5, .P_l = 6, .P_r = 6, .D = 3}),
      sized({.N = 1, .C_in = 32, .C_out = 32, .L_in = 701, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 2, .C_in = 64, .C_out = 16, .L_in = 402, .K = 2}),
      sized({.N = 3, .C_in = 8, .C_out = 8, .L_in = 5, .K = 9, .P_l = 3, .P_r = 4}),
      sized({.N = 1, .C_in = 96, .C_out = 96, .L_in = 264, .K = 1}),
      sized({.N = 2, .C_in = 48, .C_out = 80, .L_in = 128, .K = 2, .D = 70, .G = 2}),
      sized({.N = 1, .C_in = 24, .C_out = 40, .L_in = 251, .K = 7, .P_l = 15, .P_r = 2, .D = 5}),
      sized({.N = 1, .C_in = 16, .C_out = 160, .L_in = 1000, .K = 7, .P_l = 3, .P_r = 3}),
      sized({.N = 2, .C_in = 20, .C_out = 36, .L_in = 260, .K = 4, .P_l = 2, .P_r = 1}),
      sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 1000, .K = 3, .P_l = 1, .P_r = 1}),
      sized({.N = 1, .C_in = 48, .C_out = 24, .L_in = 1032, .K = 3, .P_l = 1, .P_r = 1}),
  };
}

std::vector<tensor_core::TmaShape> shapes() { return {{2, 0, 0}, {1, 0, 0}, {2, 1, 6}, {1, 2, 5}}; }

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

auto by_source_tma(Precision precision, const cuda::Epilogue& epilogue = {}) {
  return [precision, epilogue](const GpuCall& call) {
    tensor_core::source_tma_gather(
        {call.problem, call.direction, precision, call.first, call.second, call.bias, call.out, epilogue, 0, call.stream});
  };
}

bool takes(const ConvProblem& p, ConvDirection direction, Precision precision) {
  return tensor_core::cost_counts(GatherKernel::source_tma, {p, direction, precision}, cuda::properties(0)).has_value();
}

}  // namespace

TEST_CASE("steps fit shared memory, list every product, and every position has one box") {
  int fitting = 0, halves = 0, dynamic = 0, of_kind[3] = {};
  for (const ConvProblem& p : boxes_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm gemm = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::TmaShape& shape : shapes()) {
        const tensor_core::TmaTiling tiling = tensor_core::make_tma_tiling(gemm, shape, 132, kSharedOfHopper);
        if (tiling.count == 0) continue;
        ++fitting;
        halves += tiling.is_half ? 1 : 0;
        dynamic += tiling.is_dynamic ? 1 : 0;
        ++of_kind[static_cast<int>(tiling.kind)];
        CHECK(tiling.shared_bytes <= kSharedOfHopper);
        CHECK(tiling.stages >= 2);
        CHECK(tiling.raw_stages >= 2);
        // A pipeline that has no more tiles must not leave a stage to the other pipeline.
        CHECK((!tiling.is_dynamic || (tiling.stages % 2 == 0 && tiling.kind != tensor_core::TmaRows::any)));
        CHECK(tiling.raw_stages <= tensor_core::kTmaRingMost);
        CHECK(tiling.rows >= gemm.rows);
        CHECK(tiling.chunks * tiling.chunk_rows == gemm.rows);
        CHECK(tiling.chunks * tiling.chunk_blocks * 8 == tiling.rows);
        CHECK(tiling.depths == gemm.taps * tiling.rows / 16);
        CHECK(tiling.depths * (shape.parts == 2 && !tiling.is_half ? 2 : 1) <= tensor_core::kTmaDepthsMost);
        for (int i = 0; i < tiling.depths; ++i) {
          CHECK((tiling.products[i].source + static_cast<unsigned>(tiling.positions + tiling.tile.window)) * 16 <=
                static_cast<unsigned>(tiling.source_bytes));
          CHECK(tiling.products[i].weights * 16 < static_cast<unsigned>(tiling.weight_bytes));
        }
        // A tile's rows are a multiple of the classes, and its boxes are within the limits of a tensor map.
        const int loads = 1 << tiling.load_bits, stores = 1 << tiling.store_bits;
        CHECK(tiling.chunk_rows % loads == 0);
        CHECK(loads * gemm.source_length % 4 == 0);
        CHECK(stores * gemm.out_length % 8 == 0);
        CHECK(tiling.columns % stores == 0);
        CHECK(gemm.out_channels % tiling.columns == 0);
        CHECK(tiling.columns <= (tiling.is_half ? 32 : 64));
        CHECK(tiling.raw_pitch <= 256);
        CHECK(tiling.raw_class_bytes % 128 == 0);
        for (int own = 0; own < loads; ++own) {
          CHECK(tiling.lead[own] + tiling.positions + tiling.halo <= tiling.raw_pitch);
          // Copies begin at multiples of 16 bytes.
          const std::int64_t first = gemm.position_begin + gemm.source_origin - tiling.lead[own];
          CHECK((first + shape.source_place + own * gemm.source_length) % 4 == 0);
        }
        for (int own = 0; own < stores; ++own) {
          CHECK((tiling.shift[own] + shape.out_place + own * gemm.out_length) % 8 == 0);
          CHECK(tiling.shift[own] + tiling.position_step <= tiling.positions);
          CHECK((tiling.kind == tensor_core::TmaRows::any || tiling.shift[own] % 2 == 0));
          CHECK((tiling.kind != tensor_core::TmaRows::whole || tiling.shift[own] == 0));
        }
        if (tiling.kind == tensor_core::TmaRows::whole) {
          CHECK(tiling.columns % 8 == 0);
          CHECK(tiling.staging_bytes % 1024 == 0);  // swizzled lines
          // The low parts of two steps of gemm_k of one tap are multiplied together.
          if (shape.parts == 2 && tiling.is_half) CHECK(tiling.rows % 32 == 0);
        }
        CHECK(tiling.position_step % 8 == 0);
        CHECK(gemm.position_begin + gemm.out_origin == 0);
        CHECK(tiling.position_tiles * tiling.position_step >= gemm.position_count);
        CHECK(tiling.grid % tiling.weight_tiles == 0);  // a block keeps its weights' columns
      }
    }
  }
  CHECK(fitting > 30);
  CHECK(halves > 0);
  CHECK(dynamic > 0);
  CHECK(dynamic < fitting);
  for (const int count : of_kind) CHECK(count > 0);
}

TEST_CASE("strides, long reductions and classes that a tile does not fill are declined") {
  const auto takes_steps = [](const ConvProblem& p, ConvDirection direction = ConvDirection::forward) {
    return tensor_core::make_tma_tiling(cuda::make_tap_gemm(p, direction), {2, 0, 0}, 132, kSharedOfHopper).count != 0;
  };
  CHECK(takes_steps(sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 512, .K = 5})));
  CHECK(!takes_steps(sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 512, .K = 5, .S = 2})));
  CHECK(!takes_steps(sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 512, .K = 6})));
  CHECK(takes_steps(sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 513, .K = 5})));
  CHECK(!takes_steps(sized({.N = 1, .C_in = 32, .C_out = 60, .L_in = 513, .K = 5})));
  CHECK(!takes_steps(sized({.N = 1, .C_in = 30, .C_out = 64, .L_in = 513, .K = 5})));
  CHECK(!takes_steps(sized({.N = 1, .C_in = 32, .C_out = 67, .L_in = 512, .K = 5})));
}

TEST_CASE("small integers, bit for bit, wherever the arrays begin") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : thinned(boxes_problems(), 3)) {
    const ConvArrays<float> arrays(p, kSmallIntegers);
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const Array<float> expected = arrays.run(direction, Algorithm::reference);
      for (const Precision precision : {Precision::fp32, Precision::tf32}) {
        if (!takes(p, direction, precision)) continue;
        for (const std::int64_t misalignment : {0, 1 + turn++ % 7}) {
          bool intact = false;
          const Array<float> got = run_on_gpu(arrays, direction, by_source_tma(precision), intact, true, misalignment);
          CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision, " misaligned by ", misalignment);
          CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
          norm += expected.norm();
        }
      }
    }
  }
  CHECK(turn > (is_reduced() ? 5 : 20));
  CHECK(norm > 0);
}

TEST_CASE("small integers, several tiles a block, static and dynamic scheduler, one and two chunks of rows") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  int runs = 0;
  for (const ConvProblem& p : {sized({.N = 2, .C_in = 8, .C_out = 64, .L_in = 102400, .K = 3, .P_l = 1, .P_r = 1}),
                               sized({.N = 2, .C_in = 16, .C_out = 32, .L_in = 51200, .K = 3, .P_l = 1, .P_r = 1}),
                               sized({.N = 2, .C_in = 16, .C_out = 48, .L_in = 51200, .K = 3}),
                               sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 51196, .K = 5}),
                               sized({.N = 2, .C_in = 8, .C_out = 8, .L_in = 51201, .K = 2})}) {
    const ConvArrays<float> arrays(p, kSmallIntegers);
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const Array<float> expected = arrays.run(direction, Algorithm::reference);
      for (const Precision precision : {Precision::fp32, Precision::tf32}) {
        if (!takes(p, direction, precision)) continue;
        bool intact = false;
        const Array<float> got = run_on_gpu(arrays, direction, by_source_tma(precision), intact);
        CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision);
        CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
        ++runs;
      }
    }
  }
  CHECK(runs > 8);
}

TEST_CASE("fp32 is as accurate as plain f32 sums, over 160 powers of two in one row as well") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  std::mt19937 random(3);
  for (const ConvProblem& p : {boxes_problems()[0], boxes_problems()[2]}) {
    for (const bool wide : {false, true}) {
      ConvArrays<float> arrays(p, kNormal);
      if (wide) {
        for (std::int64_t i = 0; i < arrays.x.size(); ++i)
          arrays.x[i] = std::ldexp(arrays.x[i], static_cast<int>(random() % 160) - 80);
        for (std::int64_t i = 0; i < arrays.y.size(); ++i)
          arrays.y[i] = std::ldexp(arrays.y[i], static_cast<int>(random() % 80) - 60);
      }
      for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
        bool intact = false;
        const Array<float> got = run_on_gpu(arrays, direction, by_source_tma(Precision::fp32), intact);
        check_as_accurate_as_plain(got, arrays, direction, concat(p, ' ', direction, wide ? " wide" : ""));
      }
    }
  }
}

TEST_CASE("infinities, NaN and subnormal numbers come out as from plain sums, the same from run to run") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  for (const ConvProblem& p : {boxes_problems()[0], boxes_problems()[1], boxes_problems()[2]}) {
    ConvArrays<float> arrays(p, kSmallIntegers);
    make_unusual(arrays, 1500);
    for (std::int64_t i = 2000; i < 2050; ++i) arrays.x[i] = std::ldexp(3.0F, -140);
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      bool intact = false;
      const Array<float> expected = arrays.run(direction, Algorithm::reference);
      const Array<float> got = run_on_gpu(arrays, direction, by_source_tma(Precision::fp32), intact);
      check_unusual(got, expected, direction);
      CHECK(same_bits(run_on_gpu(arrays, direction, by_source_tma(Precision::fp32), intact), got));
    }
  }
}

TEST_CASE("an activation has the bits of a separate one, also for recomputed sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  constexpr float kSlope = 0.2F;
  int turn = 0;
  for (const ConvProblem& p : thinned(boxes_problems(), 3)) {
    ConvArrays<float> arrays(p, kNormal);
    // Numbers that two f16 cannot hold at the scale of the others.
    for (std::int64_t i = 0; i < arrays.x.size(); i += 371) arrays.x[i] *= 1e-12F;
    for (std::int64_t i = 0; i < arrays.y.size(); i += 371) arrays.y[i] *= 1e-12F;
    arrays.x[arrays.x.size() / 2] = 1e20F;
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      for (const Precision precision : {Precision::fp32, Precision::tf32}) {
        if (!takes(p, direction, precision)) continue;
        ++turn;
        const std::int64_t misalignment = turn % 4 == 0 ? 1 : 0;
        const bool is_relu = turn % 2 == 0;
        const cuda::Epilogue epilogue{is_relu ? cuda::Activation::relu : cuda::Activation::leaky_relu, kSlope};
        bool intact = false;
        const Array<float> plain = run_on_gpu(arrays, direction, by_source_tma(precision), intact, true, misalignment);
        const Array<float> got = run_on_gpu(arrays, direction, by_source_tma(precision, epilogue), intact, true, misalignment);
        CHECK(intact);
        std::int64_t wrong = 0;
        for (std::int64_t i = 0; i < got.size(); ++i) {
          const float should_be = plain[i] < 0 ? (is_relu ? 0.0F : kSlope * plain[i]) : plain[i];
          wrong += got[i] == should_be || (std::isnan(got[i]) && std::isnan(should_be)) ? 0 : 1;
        }
        CHECK_MESSAGE(wrong == 0, p, ' ', direction, ' ', precision, " misaligned by ", misalignment);
      }
    }
  }
  CHECK(turn > (is_reduced() ? 5 : 20));
}
