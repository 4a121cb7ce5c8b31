#include "cuda/conv/sm90/tensor_core.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda/conv/sm80/tensor_core_mma.hpp"
#include "cuda/conv/sm90/tensor_core_narrow_steps.hpp"
#include "cuda/conv/sm90/tensor_core_resident_rows_steps.hpp"
#include "cuda/conv/sm90/tensor_core_resident_steps.hpp"
#include "cuda/conv/sm90/tensor_core_steps.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;

namespace {

/// Strides, dilations, groups, paddings and lengths around the tiles, with channels enough for the tensor cores.
std::vector<ConvProblem> dense_problems() {
  std::vector<ConvProblem> problems;
  Picker pick(5);
  const std::int64_t lengths[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 513};
  for (int turn = 0; turn < 60; ++turn) {
    ConvProblem p;
    p.N = pick(1, 2);
    p.G = turn % 4 == 0 ? 2 : 1;
    p.C_in = p.G * pick(8, turn % 5 == 0 ? 140 : 24);
    p.C_out = p.G * pick(8, turn % 7 == 0 ? 130 : 24);
    p.L_in = lengths[pick(0, 13)];
    p.S = pick(1, turn % 11 == 0 ? 12 : 4);
    p.D = turn % 3 == 0 ? pick(1, 5) : 1;
    p.K = turn % 2 == 0 ? p.S * pick(1, 3) : pick(1, 9);
    p.P_l = pick(0, std::min<std::int64_t>(5, ((p.L_in - 1) * p.S + p.D * (p.K - 1)) / 2));
    p.P_r = p.P_l / 2;
    p.OP = pick(0, std::max(p.S, p.D) - 1);
    p = sized(p);
    if (p.L_out > 0) problems.push_back(p);
  }
  return thinned(std::move(problems));
}

/// Stride and dilation 1 and many channels: what is done with the source in registers. Some rows are whole sectors, some odd.
std::vector<ConvProblem> row_problems() {
  std::vector<ConvProblem> problems;
  const std::int64_t channels[][2] = {{128, 128}, {70, 128}, {128, 97}, {16, 200}};
  const std::int64_t lengths[] = {1, 62, 64, 129, 192, 511, 640};
  int turn = 0;
  for (const auto& [in, out] : channels) {
    for (const std::int64_t length : lengths) {
      ConvProblem p;
      p.N = 1 + turn % 2;
      p.G = turn % 5 == 4 ? 2 : 1;
      p.C_in = in * p.G;
      p.C_out = out * p.G;
      p.L_in = length;
      p.K = turn % 3 == 2 ? 5 : 3;
      p.P_l = turn % 4 == 1 ? 0 : std::min<std::int64_t>(p.K / 2, length / 2);
      p.P_r = turn % 4 == 2 ? 0 : p.P_l;
      ++turn;
      p = sized(p);
      if (p.L_out > 0) problems.push_back(p);
    }
  }
  problems = thinned(std::move(problems));
  // Even rows that do not begin at sectors, in every grid: tiles that carry, in runs of more than one block's, too.
  problems.push_back(sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = 640, .K = 3}));
  problems.push_back(sized({.N = 1, .C_in = 40, .C_out = 128, .L_in = 512, .K = 5, .P_l = 1, .P_r = 1}));
  problems.push_back(sized({.N = 3, .C_in = 24, .C_out = 128, .L_in = 1200, .K = 3, .G = 1}));
  return problems;
}

bool can(const ConvProblem& p, ConvDirection direction, Precision precision) {
  return !tensor_core::can_implement(p, direction, precision, 0).has_value();
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() >= 80; }

/// Every direction that can, bit for bit against the reference on small integers; the norm of what was compared.
template <class E>
double check_bits(ConvProblem p, Precision precision, std::int64_t misalignment) {
  p.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  double norm = 0;
  for (const ConvDirection direction : kDirections) {
    if (!can(p, direction, precision)) continue;
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    bool intact = false;
    const Array<E> got =
        run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core, precision), intact, true, misalignment);
    CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision, " misaligned by ", misalignment);
    CHECK_MESSAGE(intact, p, ' ', direction, ": wrote outside its output");
    norm += expected.norm();
  }
  return norm;
}

}  // namespace

TEST_CASE("steps of every problem fit shared memory and cover the reduction") {
  for (const ConvProblem& p : dense_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::TileShape& tile :
           {tensor_core::TileShape{128, 128, 2, 8, 16}, tensor_core::TileShape{64, 256, 2, 8, 16},
            tensor_core::TileShape{128, 256, 1, 4, 8}, tensor_core::TileShape{64, 512, 1, 8, 16}}) {
        const tensor_core::Steps steps = tensor_core::make_steps(form, tile, 132, kSharedOfHopper);
        REQUIRE(steps.count > 0);
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK(steps.stages >= 2);
        CHECK(steps.rows * steps.row_steps >= form.rows);
        CHECK(steps.planes * steps.plane_steps >= form.planes);
        CHECK(steps.taps * steps.tap_steps >= form.taps);
        CHECK(steps.rows % tile.depth == 0);
        CHECK(steps.tile.window >= tile.positions + (steps.taps - 1) * form.tap_step);
        CHECK(steps.blocks == p.N * steps.weight_tiles * steps.position_tiles);
        CHECK((!steps.resident || steps.grid % steps.weight_tiles == 0));  // a block keeps its columns
      }
    }
  }
}

TEST_CASE("resident steps fit shared memory, list every product and leave no position out") {
  int fitting = 0, whole = 0;
  for (const ConvProblem& p : dense_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::ResidentShape& shape :
           {tensor_core::ResidentShape{128, 2, 4, true, true}, tensor_core::ResidentShape{256, 1, 4, true, false},
            tensor_core::ResidentShape{256, 1, 2, true, true}, tensor_core::ResidentShape{128, 1, 2, false, false}}) {
        const tensor_core::ResidentSteps steps = tensor_core::make_resident_steps(form, shape, 132, kSharedOfHopper);
        if (steps.count == 0) continue;
        ++fitting;
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK((steps.stages >= 2 && steps.raw_stages >= 2));
        CHECK(steps.rows * steps.row_steps >= form.rows);
        CHECK(steps.planes * steps.plane_steps >= form.planes);
        CHECK(steps.taps == form.taps);
        CHECK(steps.product_count == steps.taps * steps.planes * steps.rows / 16);
        for (int i = 0; i < steps.product_count; ++i) {
          CHECK((steps.products[i].source + shape.positions) * 16 <= static_cast<unsigned>(steps.source_bytes));
          CHECK(steps.products[i].weights * 16 < static_cast<unsigned>(steps.weight_bytes));
        }
        // Every row's tiles, from their first sector on, follow each other from before its start to behind its end.
        const std::int64_t first = form.out_stride * steps.position_begin + form.out_origin;
        const std::int64_t behind = first + form.out_stride * steps.position_tiles * steps.position_step;
        CHECK(steps.position_step * form.out_stride % steps.aligned == 0);
        whole += steps.has_whole_sectors() ? 1 : 0;
        if (steps.has_whole_sectors()) {
          CHECK((first <= 0 && first % steps.aligned == 0 && form.out_length % steps.aligned == 0));
        } else if (steps.aligned > 1) {
          CHECK(first + steps.aligned - 1 <= 0);
          CHECK(steps.aligned - 1 + form.out_stride * steps.position_step <= form.out_stride * steps.positions);
        }
        CHECK(steps.position_begin <= form.position_begin);
        CHECK(steps.position_begin + steps.position_tiles * steps.position_step >= form.position_begin + form.position_count);
        CHECK(behind >= form.out_length - form.out_stride * form.out_class_step * form.classes);
        CHECK(steps.grid % steps.weight_tiles == 0);  // a block keeps its columns
      }
    }
  }
  CHECK((is_reduced() ? fitting > 0 : 0 < whole && whole < fitting));
}

TEST_CASE("narrow steps fit shared memory, list every product, and tiles follow each other from sector to sector") {
  int fitting = 0, stacked = 0, whole = 0, spread = 0, drawn = 0;
  std::vector<ConvProblem> problems = dense_problems();
  for (const ConvProblem& p : spread_problems()) problems.push_back(p);
  for (const ConvProblem& p : problems) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::NarrowShape& shape : {tensor_core::NarrowShape{2, 4, true}, tensor_core::NarrowShape{1, 4, false},
                                                    tensor_core::NarrowShape{1, 2, true}}) {
        const tensor_core::NarrowSteps steps = tensor_core::make_narrow_steps(form, shape, 132, kSharedOfHopper);
        if (steps.count == 0) continue;
        ++fitting;
        stacked += steps.is_stacked ? 1 : 0;
        spread += steps.is_spread ? 1 : 0;
        drawn += steps.is_drawn ? 1 : 0;
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK(steps.stages >= 2);
        CHECK(steps.raw_stages >= 2);
        CHECK(steps.rows >= form.rows);
        CHECK(steps.depths == form.taps * form.planes * steps.rows / 16);
        CHECK(steps.depths * (shape.parts == 2 && !steps.is_stacked ? 2 : 1) <= tensor_core::kNarrowDepthsMost);
        for (int i = 0; i < steps.depths; ++i) {
          CHECK((steps.products[i].source + static_cast<unsigned>(steps.positions)) * 16 <=
                static_cast<unsigned>(steps.source_bytes));
          CHECK(steps.products[i].weights * 16 < static_cast<unsigned>(steps.weight_bytes));
        }
        // A tile is whole channels, whose staged rows have all their phases.
        CHECK(steps.columns >= steps.channels * form.classes);
        CHECK(steps.channels * form.classes <= (steps.is_stacked ? 32 : 64));
        if (steps.is_spread) {  // a lane has 15 or 16 vectors of four elements, and at most three of four lanes one less
          CHECK((form.out_stride == 2 && form.classes == 1 && !steps.is_stacked));
          CHECK(form.out_stride * steps.position_step >= 15 * 16);
          CHECK(form.out_stride * steps.position_step <= 16 * 16);
          CHECK(steps.out_pitch >= form.out_stride * steps.position_step);
        } else {
          CHECK(steps.out_pitch >= form.out_stride * steps.positions + 16 / shape.element_bytes - 1);
        }
        CHECK(steps.out_pitch * shape.element_bytes % 16 == 0);
        CHECK(steps.channels * steps.out_pitch * shape.element_bytes <= steps.staging_bytes);
        CHECK((steps.is_by_warps || steps.columns % form.classes == 0));
        const std::int64_t first = form.out_stride * steps.position_begin + form.out_origin;
        CHECK(steps.position_step * form.out_stride % steps.aligned == 0);
        if (steps.position_step == steps.positions) {  // no row needs a window of its own
          ++whole;
          CHECK(first % steps.aligned == 0);
          CHECK(form.out_length % steps.aligned == 0);
        } else {
          CHECK(first + steps.aligned - 1 <= 0);
          CHECK(steps.aligned - 1 + form.out_stride * steps.position_step <= form.out_stride * steps.positions);
        }
        CHECK(steps.position_begin <= form.position_begin);
        CHECK(steps.position_begin + steps.position_tiles * steps.position_step >= form.position_begin + form.position_count);
        CHECK(steps.grid % steps.weight_tiles == 0);  // a block keeps its columns
      }
    }
  }
  CHECK(fitting > 0);
  CHECK(stacked > 0);
  CHECK(spread > 0);
  CHECK(whole > 0);
  CHECK(drawn > 0);
  CHECK(drawn < fitting);
}

TEST_CASE("row steps fit shared memory and leave no position out") {
  int fitting = 0, pairs = 0, odd = 0, two_classes = 0, carried = 0, carried_halves = 0;
  for (const ConvProblem& p : row_problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      const cuda::TapGemm form = cuda::make_tap_gemm(p, direction);
      for (const tensor_core::RowShape& shape :
           {tensor_core::RowShape{1, 128, 2, 4, 2304, 0, 0, 0, 0}, tensor_core::RowShape{1, 128, 2, 4, 2304, 0, 0, 12, 4},
            tensor_core::RowShape{2, 128, 1, 4, 18048, 20480, 32, 0, 0},
            tensor_core::RowShape{2, 128, 1, 2, 8832, 36864, 128, 4, 8},
            tensor_core::RowShape{2, 128, 1, 2, 8832, 36864, 128, 4, 2}}) {
        const tensor_core::RowSteps steps = tensor_core::make_row_steps(form, shape, 132, kSharedOfHopper);
        if (steps.count == 0) continue;
        ++fitting;
        pairs += steps.stores_pairs ? 1 : 0;
        odd += steps.parity == tensor_core::RowParity::odd ? 1 : 0;
        two_classes += steps.classes == 2 ? 1 : 0;
        const bool carries = steps.store_classes != 0;
        carried += carries && shape.element_bytes == 4 ? 1 : 0;
        carried_halves += carries && shape.element_bytes == 2 ? 1 : 0;
        CHECK(steps.shared_bytes <= kSharedOfHopper);
        CHECK(steps.stages >= 2);
        CHECK(steps.rows * steps.count >= form.rows);
        CHECK(steps.span == steps.positions + form.taps - 1);
        CHECK(steps.pitch >= steps.span * shape.element_bytes);
        // No bank conflicts; boxes begin at multiples of 128 bytes.
        CHECK(steps.pitch % (steps.classes == 2 ? 64 : 32) == (steps.classes == 2 ? 32 : 16));
        CHECK(steps.stage_bytes % 256 == 0);
        CHECK((steps.classes == 0 || steps.classes * form.source_length * shape.element_bytes % 16 == 0));
        CHECK((!carries || steps.store_classes * form.out_length * shape.element_bytes % 32 == 0));
        CHECK((!carries || (form.out_origin + steps.position_begin) % 2 == 0));
        // Runs begin a sector early, both consumers have as many tiles of one, and what a row's last tile carries is no output.
        CHECK((carries ? steps.run % 2 == 0 && steps.last_run % 2 == 0 : steps.run == 1));
        CHECK((!carries || (steps.aligned * shape.element_bytes == 32 && steps.last_run <= steps.run &&
                            steps.position_begin + steps.aligned <= form.position_begin)));
        const std::int64_t reach = steps.position_begin + (steps.position_tiles - 1) * steps.position_step +
                                   steps.last_run * steps.positions - steps.aligned + 1;
        CHECK((!carries || reach >= form.position_begin + form.position_count));
        CHECK(steps.store_classes <= tensor_core::kStoreClassesMost);
        CHECK(steps.rings == (tensor_core::takes_turns(shape.parts, shape.element_bytes) ? 1 : 2));
        CHECK(steps.position_step <= steps.run * steps.positions);
        CHECK((!steps.stores_pairs || steps.position_step == steps.positions));
        CHECK(steps.position_begin <= form.position_begin);
        CHECK(steps.position_begin + steps.position_tiles * steps.position_step >= form.position_begin + form.position_count);
        CHECK(steps.grid % steps.weight_tiles == 0);  // a block keeps its columns
        CHECK((shape.element_bytes == 4 || carries || form.out_length % 16 == 0));
        CHECK((shape.element_bytes == 2 || steps.stages * steps.rings <= tensor_core::kRowTilesAhead * steps.count * 2));
        CHECK_FALSE(steps.is_drawn);
      }
    }
  }
  CHECK(fitting > 0);
  CHECK(pairs > 0);
  CHECK(odd > 0);
  CHECK(two_classes > 0);
  CHECK(carried > 0);
  CHECK(carried_halves > 0);
  ConvProblem strided = sized({.N = 1, .C_in = 128, .C_out = 128, .L_in = 640, .K = 3, .S = 2});
  const tensor_core::RowShape shape{1, 128, 2, 4, 4480, 0, 0, 0, 0};
  CHECK(tensor_core::make_row_steps(cuda::make_tap_gemm(strided, ConvDirection::forward), shape, 132, kSharedOfHopper).count ==
        0);
}

TEST_CASE("16-bit rows that are carried from tile to tile are activated where they are stored") {
  if (!has_tensor_cores() || cuda::properties(0).arch() != 90 || tensor_core::uses_mma(90)) SKIP_TEST("no wgmma");
  const auto fuses = [](ConvProblem p, const cuda::Epilogue& epilogue) {
    p.dtype = DType::bf16;
    return tensor_core::fuses(p, ConvDirection::forward, epilogue, Precision::fp32, 0);
  };
  const ConvProblem carried = sized({.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3});
  const ConvProblem whole = sized({.N = 64, .C_in = 128, .C_out = 128, .L_in = 65536, .K = 3, .P_l = 1, .P_r = 1});
  CHECK(fuses(carried, {Activation::relu}));
  CHECK(fuses(carried, {Activation::leaky_relu, 0.1}));
  CHECK_FALSE(fuses(carried, {Activation::tanh}));
  CHECK_FALSE(fuses(carried, {.activation = Activation::relu, .residual = 16}));
  CHECK_FALSE(fuses(whole, {Activation::relu}));
}

TEST_CASE("small integers, bit for bit: every type and precision, forward and both gradients") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  double norm = 0;
  int turn = 0;
  std::vector<ConvProblem> problems = dense_problems();
  for (const ConvProblem& p : row_problems()) problems.push_back(p);
  for (const ConvProblem& p : spread_problems()) problems.push_back(p);
  for (const ConvProblem& p : problems) {
    norm += check_bits<float>(p, Precision::fp32, turn % 5);
    norm += check_bits<float>(p, Precision::tf32, turn % 3);
    if (turn % 2 == 0) norm += check_bits<Half>(p, Precision::fp32, turn % 9);
    if (turn % 2 == 1) norm += check_bits<BFloat16>(p, Precision::fp32, turn % 9);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("a bias of 16 bits that is infinite or no number is that of its own channel alone") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  // Rows that are carried from tile to tile, and of whole sectors.
  for (const std::int64_t length : {402, 398}) {
    const ConvProblem p = sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = length, .K = 3});
    check_unusual_biases<Half>(p);
    check_unusual_biases<BFloat16>(p);
  }
}

/// fp32 against plain f32 sums.
void check_against_plain(const ConvArrays<float>& arrays, ConvDirection direction, const char* what) {
  bool intact = false;
  const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact);
  check_as_accurate_as_plain(got, arrays, direction, concat(direction, what));
}

/// `wide`: over 160 powers of two in one row.
void check_accuracy(const ConvProblem& problem) {
  std::mt19937 random(3);
  for (const bool wide : {false, true}) {
    ConvArrays<float> arrays(problem, kNormal);
    if (wide) {
      for (std::int64_t i = 0; i < arrays.x.size(); ++i)
        arrays.x[i] = std::ldexp(arrays.x[i], static_cast<int>(random() % 160) - 80);
      for (std::int64_t i = 0; i < arrays.y.size(); ++i)
        arrays.y[i] = std::ldexp(arrays.y[i], static_cast<int>(random() % 80) - 60);
    }
    for (const ConvDirection direction : kDirections) {
      if (wide && direction == ConvDirection::wgrad) continue;  // sums of squares that no float holds
      check_against_plain(arrays, direction, wide ? " wide" : "");
    }
  }
}

TEST_CASE("fp32 is as accurate as plain f32 sums, over 160 powers of two in one row as well") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  check_accuracy(sized({.N = 2, .C_in = 48, .C_out = 40, .L_in = 700, .K = 6, .S = 2, .P_l = 2, .P_r = 1}));
  check_accuracy(sized({.N = 2, .C_in = 32, .C_out = 64, .L_in = 601, .K = 5, .S = 1, .D = 3}));  // weights in registers
  check_accuracy(sized({.N = 1, .C_in = 72, .C_out = 80, .L_in = 450, .K = 3, .S = 1, .P_l = 1, .P_r = 0}));
}

TEST_CASE("fp32 is as accurate where nearly all numbers are too small for two halves, in more tiles than a warp remembers") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  ConvArrays<float> arrays(sized({.N = 1, .C_in = 8, .C_out = 8, .L_in = is_reduced() ? 600 : 600'000, .K = 1}), kNormal);
  for (std::int64_t i = 0; i < 8; ++i) arrays.bias_out[i] = 0;
  for (std::int64_t i = 40; i < arrays.x.size(); ++i) arrays.x[i] = std::ldexp(arrays.x[i], -50);
  check_against_plain(arrays, ConvDirection::forward, " small");
}

void check_unusual(const ConvProblem& problem, Precision precision = Precision::fp32) {
  ConvArrays<float> arrays(problem, kSmallIntegers);
  make_unusual(arrays, 1500);
  for (std::int64_t i = 2000; i < 2050; ++i) arrays.x[i] = std::ldexp(3.0F, -140);
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    bool intact = false;
    const Array<float> expected = arrays.run(direction, Algorithm::reference);
    const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core, precision), intact);
    check_unusual(got, expected, direction);
  }
}

TEST_CASE("infinities, NaN and subnormal numbers come out of fp32 as from plain sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  check_unusual(sized({.N = 1, .C_in = 16, .C_out = 16, .L_in = 400, .K = 3, .S = 2, .P_l = 1, .P_r = 1}));
  check_unusual(sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 400, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2}));
  check_unusual(sized({.N = 1, .C_in = 70, .C_out = 66, .L_in = 400, .K = 3, .S = 1, .P_l = 1, .P_r = 1}));
  // Rows of whole sectors and others, which overlap or carry: a warp repairs what another has stored.
  for (const Precision precision : {Precision::fp32, Precision::tf32})
    for (const std::int64_t length : {400, 402, 401})
      check_unusual(sized({.N = 2, .C_in = 128, .C_out = 128, .L_in = length, .K = 3, .S = 1}), precision);
}

TEST_CASE("the same bits from run to run, over slices as well") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  const ConvArrays<float> arrays(sized({.N = 4, .C_in = 24, .C_out = 40, .L_in = 20001, .K = 5, .S = 1, .P_l = 2, .P_r = 2}),
                                 kNormal);
  for (const ConvDirection direction : kDirections) {
    bool intact = false;
    const auto first = run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact);
    for (int again = 0; again < 5; ++again)
      CHECK(same_bits(run_on_gpu(arrays, direction, by_algorithm(Algorithm::tensor_core), intact), first));
  }
}

TEST_CASE("what it declines, and why") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 8.0 or later");
  const ConvProblem few = sized({.N = 1, .C_in = 4, .C_out = 16, .L_in = 9, .K = 3});
  CHECK(tensor_core::can_implement(few, ConvDirection::forward, Precision::fp32, 0) ==
        "it needs 8 channels a group on both sides, got 4 and 16");
  ConvProblem dense = sized({.N = 1, .C_in = 16, .C_out = 16, .L_in = 9, .K = 3, .S = 2});
  CHECK(tensor_core::can_implement(dense, ConvDirection::forward, Precision::ieee, 0) ==
        "precision ieee wants unrounded products");
  for (const Precision precision : {Precision::fp32, Precision::tf32})  // both computed again where they meet an infinity
    CHECK(!tensor_core::can_implement(dense, ConvDirection::forward, precision, 0).has_value());
  dense.dtype = DType::bf16;
  if (!tensor_core::uses_mma(cuda::properties(0).arch()))  // which computes them again
    CHECK(tensor_core::can_implement(dense, ConvDirection::forward, Precision::fp32, 0) ==
          "a phase lacks a tap that others have, and the zero in its place would turn an infinity into NaN");
  dense.dtype = DType::f64;
  CHECK(tensor_core::can_implement(dense, ConvDirection::dgrad, Precision::fp32, 0) ==
        "there are no tensor cores for f64 convolutions here");
}
