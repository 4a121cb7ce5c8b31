#include "cuda/conv/depthwise/depthwise.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cuda/conv/depthwise/band.hpp"
#include "cuda/conv/depthwise/rows.hpp"
#include "cuda/conv/depthwise/short_rows.hpp"
#include "cuda/conv/depthwise/vector.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("the grid with one or two outputs a channel, every type and misalignment") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (const ConvProblem& p : grid_problems(true)) {
    norm += check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), turn % 5);
    if (turn % 3 == 0) check_gpu_bits<double>(p, by_algorithm(Algorithm::depthwise), turn % 2);
    if (turn % 3 == 1) check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), turn % 9);
    if (turn % 3 == 2) check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), turn % 9);
    ++turn;
  }
  CHECK(norm > 0);
}

TEST_CASE("long rows, many taps, large strides and dilations") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvProblem& p :
       {sized({.N = 2, .C_in = 4, .C_out = 4, .L_in = 5003, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 4}),
        sized({.N = 1, .C_in = 3, .C_out = 9, .L_in = 2001, .K = 65, .S = 1, .P_l = 32, .P_r = 32, .G = 3}),
        sized({.N = 1, .C_in = 2, .C_out = 2, .L_in = 300, .K = 7, .S = 50, .P_l = 3, .OP = 20, .G = 2}),
        sized({.N = 1, .C_in = 2, .C_out = 4, .L_in = 999, .K = 9, .S = 6, .P_l = 100, .D = 200, .G = 2}),
        sized({.N = 3, .C_in = 2, .C_out = 2, .L_in = 4000, .K = 3, .S = 1, .P_l = 9, .P_r = 9, .D = 9, .G = 2})}) {
    CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), 1) > 0);
    CHECK(check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), 3) > 0);
  }
}

TEST_CASE("stride 1 with and without dilation: short and long rows, every alignment, one output a channel") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  double norm = 0;
  int turn = 0;
  for (const std::int64_t L_in : {1, 8, 100, 129, 1023, 1024, 1025, 4099})
    for (const std::int64_t D : {1, 2, 3, 9, 100, 128, 129})
      for (const std::int64_t K : {2, 7, 12}) {
        const std::int64_t P = std::min((K - 1) * D, L_in + (K - 1) * D - 1) / 2;
        const ConvProblem p =
            sized({.N = 2, .C_in = 3, .C_out = 3, .L_in = L_in, .K = K, .P_l = P, .P_r = P / 2, .D = D, .G = 3});
        norm += check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), turn % 5);
        norm += check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), turn % 9);
        norm += check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), turn % 7);
        ++turn;
      }
  CHECK(norm > 0);
}

TEST_CASE("the vector and tensor-core kernels: strides 1, 2 and 4, every phase, edge and misalignment") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::mt19937 random(11);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  const std::int64_t lengths[] = {1, 2, 7, 8, 9, 31, 33, 64, 127, 129, 255, 257, 511, 513, 1024, 1025, 2047, 2049, 4096, 4099};
  double norm = 0;
  for (const std::int64_t S : {1, 2, 4}) {
    for (const std::int64_t L_in : lengths) {
      const std::int64_t channels = pick(1, 3), K = pick(1, S == 1 ? 13 : S == 2 ? 16 : 30);  // one more than the rule allows
      const std::int64_t P = std::min(pick(0, 6), ((L_in - 1) * S + K - 1) / 2);
      const ConvProblem p = sized({.N = pick(1, 2),
                                   .C_in = channels,
                                   .C_out = channels * pick(1, 3),
                                   .L_in = L_in,
                                   .K = K,
                                   .S = S,
                                   .P_l = P,
                                   .P_r = P / 2,
                                   .OP = pick(0, S - 1),
                                   .G = channels});
      norm += check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), pick(0, 31));
      norm += check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), pick(0, 63));
      norm += check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), pick(0, 63));
    }
  }
  CHECK(norm > 0);
}

/// The input gradient by depthwise against the CPU's reference.
template <class E>
void check_dgrad_bits(ConvProblem p, std::int64_t misalignment) {
  p.dtype = dtype_of<E>;
  const ConvArrays<E> arrays(p, kSmallIntegers);
  const Array<E> expected = arrays.run(ConvDirection::dgrad, Algorithm::reference);
  bool intact = false;
  const Array<E> got = run_on_gpu(arrays, ConvDirection::dgrad, by_algorithm(Algorithm::depthwise), intact, true, misalignment);
  CHECK_MESSAGE(same_bits(got, expected), p, " misaligned by ", misalignment);
  CHECK(intact);
  CHECK(expected.norm() > 0);
}

TEST_CASE("many rows into one: every number of taps, edge and misalignment, an activation") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  int turn = 0;
  for (std::int64_t K = 1; K <= 18; ++K)  // one more than the rule allows
    for (const std::int64_t L_in : {1, 17, 128, 500, 1024}) {
      if (++turn % 7 != 0 && is_reduced()) continue;
      const std::int64_t P = std::min((K - 1) / 2 + turn % 2, (L_in + K - 2) / 2), channels = turn % 2 + 1;
      const ConvProblem p = sized({.N = 2,
                                   .C_in = channels,
                                   .C_out = channels * (8 + turn * 5 % 33),
                                   .L_in = L_in,
                                   .K = K,
                                   .P_l = P,
                                   .P_r = P,
                                   .G = channels});
      CHECK(cuda::depthwise::has_many_rows(p, ConvDirection::dgrad) == (K <= 17));
      CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), turn % 4) > 0);
      CHECK(check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), turn % 4) > 0);
      CHECK(check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), turn % 4) > 0);
    }
  // Two channels of a group (a stereo decoder's last layer), rows of whole vectors and not.
  for (const std::int64_t groups : {1, 3})
    for (const std::int64_t K : {1, 3, 7, 9, 10, 17})
      for (const std::int64_t L_in : {5, 128, 514, 4096}) {
        const ConvProblem p = sized({.N = 2,
                                     .C_in = 2 * groups,
                                     .C_out = groups * (8 + K),
                                     .L_in = L_in,
                                     .K = K,
                                     .P_l = std::min((K - 1) / 2, L_in / 2),
                                     .P_r = std::min((K - 1) / 2, L_in / 2),
                                     .G = groups});
        CHECK(cuda::depthwise::has_many_rows(p, ConvDirection::dgrad));
        check_dgrad_bits<float>(p, L_in % 4);
        check_dgrad_bits<Half>(p, 0);
        check_dgrad_bits<BFloat16>(p, 0);
      }
  // As many rows as the rule allows: their weights need more shared memory than a kernel has without asking.
  for (const auto& [K, rows] : {std::pair{1, 2816}, {3, 1024}, {3, 1408}, {9, 938}, {10, 704}, {17, 563}}) {
    const ConvProblem p = sized({.N = 2, .C_in = 1, .C_out = rows, .L_in = 260, .K = K, .P_l = K / 2, .P_r = (K - 1) / 2});
    CHECK(cuda::depthwise::has_many_rows(p, ConvDirection::dgrad));
    check_dgrad_bits<float>(p, 0);
    check_dgrad_bits<Half>(p, 0);
    check_dgrad_bits<BFloat16>(p, 0);
  }
  // Long rows of 16 bits to one channel stay on the tensor cores.
  ConvProblem post = sized({.N = 16, .C_in = 1, .C_out = 32, .L_in = 220416, .K = 7, .P_l = 3, .P_r = 3});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    post.dtype = dtype;
    CHECK(cuda::depthwise::has_many_rows(post, ConvDirection::dgrad) == (dtype == DType::f32));
  }
  const ConvProblem p = sized({.N = 2, .C_in = 1, .C_out = 32, .L_in = 300, .K = 7, .P_l = 3, .P_r = 3});
  const ConvArrays<float> arrays(p, kSmallIntegers);
  bool intact = false;
  const Array<float> plain = run_on_gpu(arrays, ConvDirection::dgrad, by_algorithm(Algorithm::depthwise), intact);
  const auto leaky = [](const GpuCall& call) {
    cuda::depthwise::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out, {},
                            {cuda::Activation::leaky_relu, 0.5F}, 0, call.stream);
  };
  const Array<float> got = run_on_gpu(arrays, ConvDirection::dgrad, leaky, intact);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) wrong += got[i] != (plain[i] > 0 ? plain[i] : plain[i] * 0.5F);
  CHECK(wrong == 0);
  CHECK(plain.norm() > 0);
}

TEST_CASE("short rows, many for each of x: every number of taps, edge and misalignment, an activation") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  int turn = 0;
  for (std::int64_t K = 1; K <= 18; ++K)  // one more than the rule allows
    for (const std::int64_t L_in : {1, 2, 10, 33, 128, 254, 258}) {
      if (++turn % 7 != 0 && is_reduced()) continue;
      const std::int64_t P = std::min((K - 1) / 2 + turn % 2, (L_in + K - 2) / 2), channels = turn % 3 + 1;
      const ConvProblem p = sized({.N = 1 + turn % 11,
                                   .C_in = channels,
                                   .C_out = channels * (8 + turn * 5 % 330),
                                   .L_in = L_in,
                                   .K = K,
                                   .P_l = P,
                                   .P_r = P / 2,
                                   .G = channels});
      const bool is_short = K <= 17 && std::max(p.L_in, p.L_out) <= 256;
      CHECK(cuda::depthwise::has_short_rows(p, ConvDirection::forward) == is_short);
      CHECK(cuda::depthwise::has_short_rows(p, ConvDirection::wgrad) == is_short);
      CHECK(cuda::depthwise::has_short_rows(p, ConvDirection::dgrad) == (is_short && p.C_out / p.C_in >= 64));
      CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), turn % 4) > 0);
      CHECK(check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), turn % 4) > 0);
      CHECK(check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), turn % 4) > 0);
    }
  // A discriminator's last layer: slices of several samples.
  const ConvProblem p = sized({.N = is_reduced() ? 24 : 176, .C_in = 1, .C_out = 1024, .L_in = 10, .K = 3, .P_l = 1, .P_r = 1});
  for (const int sm_count : {1, 7, 132}) {
    const std::int64_t slices = cuda::depthwise::short_rows_slices(p, sm_count), of_slice = (p.N + slices - 1) / slices;
    CHECK(slices * of_slice >= p.N);
    CHECK((slices - 1) * of_slice < p.N);
  }
  CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), 0) > 0);
  CHECK(check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), 1) > 0);
  const ConvArrays<float> arrays(p, kSmallIntegers);
  bool intact = false;
  const auto leaky = [](const GpuCall& call) {
    cuda::depthwise::gather(call.problem, call.direction, call.first, call.second, call.bias, call.out, {},
                            {cuda::Activation::leaky_relu, 0.5F}, 0, call.stream);
  };
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    const Array<float> plain = run_on_gpu(arrays, direction, by_algorithm(Algorithm::depthwise), intact);
    const Array<float> got = run_on_gpu(arrays, direction, leaky, intact);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < got.size(); ++i) wrong += got[i] != (plain[i] > 0 ? plain[i] : plain[i] * 0.5F);
    CHECK(wrong == 0);
    CHECK(plain.norm() > 0);
  }
}

TEST_CASE("whole lines and no bias") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvProblem p = sized({.N = 3, .C_in = 64, .C_out = 64, .L_in = 8192, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 64});
  CHECK(p.L_out == 16384);
  CHECK(check_gpu_bits<float>(p, by_algorithm(Algorithm::depthwise), 0) > 0);
  CHECK(check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), 0) > 0);
  const ConvArrays<float> arrays(p, kSmallIntegers);
  for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
    bool intact = false;
    CHECK(same_bits(run_on_gpu(arrays, direction, by_algorithm(Algorithm::depthwise), intact, false),
                    arrays.run(direction, Algorithm::reference, false)));
    CHECK(intact);
  }
}

TEST_CASE("the same bits from run to run") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvArrays<float> arrays(
      sized({.N = 4, .C_in = 6, .C_out = 6, .L_in = 20001, .K = 11, .S = 2, .P_l = 3, .P_r = 4, .OP = 1, .G = 6}), kNormal);
  for (const ConvDirection direction : kDirections) {
    bool intact = false;
    const auto first = run_on_gpu(arrays, direction, by_algorithm(Algorithm::depthwise), intact);
    for (int again = 0; again < 3; ++again)
      CHECK(same_bits(run_on_gpu(arrays, direction, by_algorithm(Algorithm::depthwise), intact), first));
  }
}

TEST_CASE_TEMPLATE("consecutive launches read what earlier ones wrote, weights and bias too", E, float, BFloat16) {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const std::int64_t S : {1, 2, 4}) {
    const ConvArrays<E> arrays(
        sized({.N = 2, .C_in = 64, .C_out = 64, .L_in = 8192, .K = 7, .S = S, .P_l = 3, .P_r = 3, .G = 64}), kNormal);
    const auto chain = [&](bool waits) {
      Array<E> x_of_y(arrays.x.size()), y_of_x(arrays.y.size()), w_of_both(arrays.w.size());
      const DeviceArray<E> first(arrays.x, 0), x(x_of_y.poison(), 0), y(y_of_x.poison(), 0), w(arrays.w, 0),
          dw(w_of_both.poison(), 0);
      const cudaStream_t stream = cuda::current_stream(0);
      const auto gather = [&](ConvDirection direction, const E* source, const E* weights, E* out) {
        cuda::depthwise::gather(arrays.p, direction, source, weights, weights, out, {}, {}, 0, stream);
        if (waits) CHECK_CUDA(cudaStreamSynchronize(stream));
      };
      gather(ConvDirection::forward, first.data(), w.data(), y.data());
      gather(ConvDirection::dgrad, y.data(), y.data(), x.data());
      gather(ConvDirection::forward, x.data(), x.data(), y.data());
      cuda::depthwise::wgrad(arrays.p, x.data(), y.data(), dw.data(), 0, stream);
      if (waits) CHECK_CUDA(cudaStreamSynchronize(stream));
      gather(ConvDirection::forward, first.data(), dw.data(), y.data());
      CHECK_CUDA(cudaStreamSynchronize(stream));
      bool intact = false;
      Array<E> result = y.download(intact);
      CHECK(intact);
      return result;
    };
    const Array<E> expected = chain(true);
    CHECK(std::isnormal(expected.norm()));
    for (int turn = 0; turn < 10; ++turn) CHECK(same_bits(chain(false), expected));
  }
}

TEST_CASE_TEMPLATE("an infinity reaches the outputs of its taps and no others", E, float, Half, BFloat16) {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvProblem& p :
       {sized({.N = 1, .C_in = 2, .C_out = 2, .L_in = 300, .K = 11, .S = 4, .P_l = 4, .P_r = 2, .G = 2}),
        sized({.N = 1, .C_in = 2, .C_out = 2, .L_in = 300, .K = 11, .S = 4, .P_l = 5, .P_r = 2, .G = 2}),
        sized({.N = 1, .C_in = 2, .C_out = 6, .L_in = 1999, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 2})}) {
    ConvArrays<E> arrays(p, kSmallIntegers);
    arrays.x[123] = E(std::numeric_limits<float>::infinity());
    arrays.y[777] = E(-std::numeric_limits<float>::infinity());
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      bool intact = false;
      const Array<E> expected = arrays.run(direction, Algorithm::reference);
      const Array<E> got = run_on_gpu(arrays, direction, by_algorithm(Algorithm::depthwise), intact);
      std::int64_t infinite = 0, wrong = 0;
      for (std::int64_t i = 0; i < got.size(); ++i) {
        infinite += std::isinf(as_double(expected[i])) ? 1 : 0;
        wrong += as_double(got[i]) != as_double(expected[i]) ? 1 : 0;
      }
      CHECK(infinite > 0);
      CHECK_MESSAGE(wrong == 0, arrays.p, " ", direction);
      CHECK(intact);
    }
  }
}

TEST_CASE("the tensor-core kernels: strides to 8, filters to their limit, many outputs a channel") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::mt19937 random(12);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  double norm = 0;
  for (const std::int64_t S : {1, 2, 3, 4, 5, 6, 7}) {
    for (const std::int64_t L_in : {1, 40, 515, 1024, 2600}) {
      const std::int64_t channels = pick(1, 3), K = pick(1, 57 - 7 * S + 1);  // one more than the rule allows
      const ConvProblem p = sized({.N = pick(1, 3),
                                   .C_in = channels,
                                   .C_out = channels * pick(1, 5),
                                   .L_in = L_in,
                                   .K = K,
                                   .S = S,
                                   .P_l = pick(0, K / 2),
                                   .P_r = pick(0, K / 2 - K / 4),
                                   .OP = pick(0, S - 1),
                                   .G = channels});
      if (p.L_out < 1) continue;
      norm += check_gpu_bits<Half>(p, by_algorithm(Algorithm::depthwise), pick(0, 63));
      norm += check_gpu_bits<BFloat16>(p, by_algorithm(Algorithm::depthwise), pick(0, 63));
    }
  }
  CHECK(norm > 0);
}

TEST_CASE("which shapes the tensor-core kernels do, and that their plans cover every row") {
  const auto plan_of = [](ConvProblem p, ConvDirection direction, DType dtype = DType::bf16) {
    p = sized(p), p.dtype = dtype;
    return cuda::depthwise::make_band_plan(p, direction, nullptr, nullptr, 132);
  };
  const ConvProblem base{.N = 3, .C_in = 5, .C_out = 10, .L_in = 1001, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 5};
  for (const ConvDirection direction : kDirections) {
    CHECK(plan_of(base, direction).has_value());
    CHECK(plan_of(base, direction, DType::f16).has_value());
    CHECK_FALSE(plan_of(base, direction, DType::f32).has_value());
    ConvProblem dilated = base, dense = base, tall = base;
    dilated.D = 2, dense.G = 1, tall.S = 8, tall.K = 2;
    CHECK_FALSE(plan_of(dilated, direction).has_value());
    CHECK_FALSE(plan_of(dense, direction).has_value());
    CHECK_FALSE(plan_of(tall, direction).has_value());
  }
  ConvProblem longest = base;
  longest.K = 43;
  CHECK(plan_of(longest, ConvDirection::dgrad).has_value());
  longest.K = 44;
  CHECK_FALSE(plan_of(longest, ConvDirection::dgrad).has_value());
  longest.K = 35;
  CHECK(plan_of(longest, ConvDirection::forward).has_value());
  longest.K = 36;
  CHECK_FALSE(plan_of(longest, ConvDirection::forward).has_value());
  for (const std::int64_t L_in : {1, 2000, 16384, 50001}) {
    for (const std::int64_t S : {1, 2, 4}) {
      for (const ConvDirection direction : kDirections) {
        const ConvProblem p =
            sized({.N = 8, .C_in = 256, .C_out = 256, .L_in = L_in, .K = 12, .S = S, .P_l = 5, .P_r = 5, .G = 256});
        if (p.L_out < 1) continue;
        const auto plan = plan_of(p, direction);
        REQUIRE(plan.has_value());
        const bool is_forward = direction == ConvDirection::forward;
        const std::int64_t tile = plan->threads / 32 * 4 * 128 * (is_forward ? S : 1);
        CHECK(plan->tiles * tile >= (is_forward ? p.L_out : p.L_in));
        CHECK(plan->shared_bytes <= 48 * 1024);
        if (direction == ConvDirection::wgrad) {
          CHECK(plan->slices <= 8 * plan->tiles);
          CHECK(plan->blocks == 256 * plan->slices);
        } else {
          CHECK(plan->blocks == 8 * 256 * plan->tiles);
        }
      }
    }
  }
}

TEST_CASE("which shapes the vector kernels do") {
  const auto fits = [](const ConvProblem& p, ConvDirection direction = ConvDirection::forward) {
    return cuda::depthwise::make_vector_plan(sized(p), direction, nullptr, 132).has_value();
  };
  const ConvProblem base{.N = 2, .C_in = 3, .C_out = 3, .L_in = 1001, .K = 12, .S = 2, .P_l = 5, .P_r = 5, .G = 3};
  const auto with = [&](const auto& change) {
    ConvProblem p = base;
    change(p);
    return p;
  };
  for (const ConvDirection direction : kDirections) CHECK(fits(base, direction));
  CHECK(fits(with([](ConvProblem& p) { p.K = 15; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.K = 16; })));
  CHECK(fits(with([](ConvProblem& p) { p.S = 1; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.S = 1, p.K = 13; })));
  CHECK(fits(with([](ConvProblem& p) { p.S = 4, p.K = 29; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.S = 4, p.K = 30; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.S = 3; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.D = 2; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.G = 1; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.dtype = DType::f64; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.dtype = DType::bf16; })));
  CHECK_FALSE(fits(with([](ConvProblem& p) { p.L_in = std::int64_t{1} << 29; })));
  // If a sample has an odd number of elements, the alignment changes from sample to sample.
  const ConvProblem odd = with([](ConvProblem& p) { p.OP = 1; });
  CHECK(sized(odd).C_out * sized(odd).L_out % 2 == 1);
  CHECK(fits(odd));
  CHECK_FALSE(fits(odd, ConvDirection::wgrad));
  CHECK(fits(with([](ConvProblem& p) { p.OP = 1, p.N = 1; }), ConvDirection::wgrad));
}

TEST_CASE("a vector plan covers every row") {
  for (const std::int64_t L_in : {1, 2000, 16384, 50001}) {
    for (const std::int64_t S : {1, 2, 4}) {
      for (const ConvDirection direction : kDirections) {
        const ConvProblem p =
            sized({.N = 8, .C_in = 256, .C_out = 256, .L_in = L_in, .K = 12, .S = S, .P_l = 5, .P_r = 5, .G = 256});
        if (p.L_out < 1) continue;
        const auto plan = cuda::depthwise::make_vector_plan(p, direction, nullptr, 132);
        REQUIRE(plan.has_value());
        const std::int64_t tile = plan->threads * (direction == ConvDirection::dgrad ? 2 : 4) * 4;
        CHECK(plan->tiles * tile >= (direction == ConvDirection::dgrad ? p.L_in : p.L_out));
        CHECK(plan->shared_bytes <= 48 * 1024);
        if (direction == ConvDirection::wgrad) {
          CHECK(plan->items == p.N * plan->tiles);
          CHECK(plan->slices * plan->tiles_per_slice >= plan->items);
          CHECK((plan->slices - 1) * plan->tiles_per_slice < plan->items);
        } else {
          CHECK(plan->blocks == 8 * 256 * plan->tiles);
        }
      }
    }
  }
}

TEST_CASE("what it cannot do, in words") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvProblem dense = sized({.C_in = 4, .C_out = 4, .L_in = 8, .K = 3, .G = 2});
  CHECK(cuda::depthwise::can_implement(dense, ConvDirection::forward, 0) == "it needs groups = C_in, got G=2 and C_in=4");
  const ConvProblem wide = sized({.C_in = 4, .C_out = 4, .L_in = 8, .K = 3, .S = 4000, .G = 4});
  CHECK(cuda::depthwise::can_implement(wide, ConvDirection::forward, 0)->find("bytes of shared memory, this GPU has") !=
        std::string::npos);
}
