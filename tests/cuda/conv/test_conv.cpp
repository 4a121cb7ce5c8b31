#include "cuda/conv/conv.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "support/cuda_conv_grid.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"
#include "tensor/error.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

constexpr Algorithm kAlgorithms[] = {Algorithm::direct, Algorithm::depthwise, Algorithm::gemm};

ConvProblem small_depthwise() {
  return sized({.N = 2, .C_in = 6, .C_out = 6, .L_in = 700, .K = 7, .S = 2, .P_l = 3, .P_r = 3, .G = 6});
}

/// Largest error against the formula in f64 over the largest error of the same sums done one after another in f32.
double error_over_plain(const ConvArrays<float>& arrays, ConvDirection direction, Algorithm algorithm) {
  const std::vector<double> exact = arrays.formula<double>(direction);
  const std::vector<float> plain = arrays.formula<float>(direction);
  bool intact = false;
  const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(algorithm, Precision::ieee), intact);
  double worst = 0, worst_plain = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[static_cast<std::int64_t>(i)]) - exact[i]));
    worst_plain = std::max(worst_plain, std::abs(static_cast<double>(plain[i]) - exact[i]));
    if (std::isnan(got[static_cast<std::int64_t>(i)])) return std::numeric_limits<double>::infinity();
  }
  return worst / worst_plain;
}

}  // namespace

TEST_CASE("random numbers: no worse than twice plain f32 sums") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvArrays<float> dense(sized({.N = 2, .C_in = 40, .C_out = 36, .L_in = 300, .K = 5, .S = 2, .P_l = 2, .P_r = 1}),
                                kNormal);
  const ConvArrays<float> depthwise(small_depthwise(), kNormal);
  for (const ConvDirection direction : kDirections) {
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::direct, Algorithm::gemm})
      CHECK_MESSAGE(error_over_plain(dense, direction, algorithm) < kErrorOverPlain, direction, " ", algorithm);
    CHECK_MESSAGE(error_over_plain(depthwise, direction, Algorithm::depthwise) < kErrorOverPlain, direction);
  }
}

TEST_CASE("no sample: nothing written, the weight gradient zero") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  ConvProblem p = small_depthwise();
  p.N = 0;
  for (const Algorithm algorithm : kAlgorithms) check_gpu_bits<float>(p, by_algorithm(algorithm));
}

TEST_CASE("the same bits, a hundred times") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvArrays<float> arrays(small_depthwise(), kNormal);
  for (const Algorithm algorithm : kAlgorithms)
    for (const ConvDirection direction : kDirections) {
      bool intact = false;
      const Array<float> first = run_on_gpu(arrays, direction, by_algorithm(algorithm), intact);
      int different = 0;
      for (int turn = 1; turn < 100; ++turn)
        different += !same_bits(run_on_gpu(arrays, direction, by_algorithm(algorithm), intact), first);
      CHECK_MESSAGE(different == 0, algorithm, " ", direction);
    }
}

TEST_CASE("several threads, each with its own stream") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t id = 0; id < wrong.size(); ++id)
    threads.emplace_back([&, id] {
      const cuda::Stream stream(0);
      const cuda::StreamScope scope(stream);
      const ConvArrays<float> arrays(
          small_depthwise(), [&](auto& array, unsigned seed) { array.small_integers(seed + 10 * static_cast<unsigned>(id)); });
      for (int turn = 0; turn < 20; ++turn)
        for (const Algorithm algorithm : kAlgorithms)
          for (const ConvDirection direction : kDirections) {
            bool intact = false;
            const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(algorithm), intact);
            wrong[id] += !same_bits(got, arrays.run(direction, Algorithm::reference)) || !intact;
          }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(wrong.size(), 0));
}

TEST_CASE("more than 2^31 elements: the last outputs are as those of a problem that ends the same") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  if (free < (std::size_t{12} << 30)) SKIP_TEST("less than 12 GiB of free device memory");
  constexpr std::int64_t kTail = 4096;
  const ConvArrays<Half> tail(sized({.N = 1, .C_in = 1, .C_out = 1, .L_in = kTail, .K = 4, .S = 2}), kSmallIntegers);
  ConvProblem large = tail.p;
  large.L_in = (std::int64_t{1} << 30) + kTail;  // 2^31 outputs and some
  large = sized(large);
  const DeviceBytes x(static_cast<std::size_t>(large.L_in) * 2), y(static_cast<std::size_t>(large.L_out) * 2), w(8);
  CHECK_CUDA(cudaMemset(x.data(), 0, static_cast<std::size_t>(large.L_in) * 2));
  auto* x_tail = static_cast<Half*>(x.data()) + large.L_in - kTail;
  CHECK_CUDA(cudaMemcpy(x_tail, tail.x.data(), kTail * 2, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(w.data(), tail.w.data(), 8, cudaMemcpyHostToDevice));
  const Array<Half> expected = tail.run(ConvDirection::forward, Algorithm::reference, false);
  for (const Algorithm algorithm : kAlgorithms) {
    CHECK_CUDA(cudaMemset(y.data(), 0xff, static_cast<std::size_t>(large.L_out) * 2));
    const cudaStream_t stream = cuda::current_stream(0);
    cuda::conv_forward(large, x.data(), w.data(), nullptr, y.data(), algorithm, Precision::fp32, 0, stream);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    Array<Half> got(tail.p.L_out);
    CHECK_CUDA(cudaMemcpy(got.data(), static_cast<Half*>(y.data()) + large.L_out - got.size(),
                          static_cast<std::size_t>(got.size()) * 2, cudaMemcpyDeviceToHost));
    CHECK_MESSAGE(same_bits(got, expected), algorithm);
  }
}

TEST_CASE("what cannot be done is refused by name") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvProblem p = sized({.C_in = 4, .C_out = 4, .L_in = 8, .K = 3});
  CHECK(cuda::can_implement(p, ConvDirection::forward, Algorithm::reference, Precision::fp32, 0) == "it runs on the CPU only");
  const std::string text = error_of<NotImplemented>([&] {
    cuda::conv_forward(p, nullptr, nullptr, nullptr, nullptr, Algorithm::depthwise, Precision::fp32, 0,
                       cuda::current_stream(0));
    return 0;
  });
  CHECK(text == concat("convolution forward: algorithm 'depthwise' cannot do ", p,
                       " on cuda:0: it needs groups = C_in, got G=1 and C_in=4; 'automatic' can"));
}
