#include "cuda/conv/conv.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <thread>

#include "cuda/memory/allocator.hpp"
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

/// Long enough for several slices of the weight gradient.
ConvProblem dense() { return sized({.N = 3, .C_in = 24, .C_out = 20, .L_in = 5000, .K = 5, .S = 2, .P_l = 2, .P_r = 1}); }

/// The largest error against the formula in f64, over the largest error of the same sums computed term by term in f32.
double error_over_plain(const ConvArrays<float>& arrays, ConvDirection direction, Algorithm algorithm) {
  const std::vector<double> exact = arrays.formula<double>(direction);
  const std::vector<float> plain = arrays.formula<float>(direction);
  bool intact = false;
  const Array<float> got = run_on_gpu(arrays, direction, by_algorithm(algorithm, Precision::ieee), intact);
  double worst = 0, worst_plain = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    worst = worse(worst, std::abs(static_cast<double>(got[static_cast<std::int64_t>(i)]) - exact[i]));
    worst_plain = worse(worst_plain, std::abs(static_cast<double>(plain[i]) - exact[i]));
  }
  return worst / worst_plain;
}

constexpr std::int64_t kWindow = 4096;  // low-rate positions of a window

/// A problem too large for the host. Its operands are zero except in two windows of the last sample: around element 2^31 of y
/// and at the end of the rows. In the windows the results equal those of a problem of the windows' size; a weight gradient is
/// the sum of both.
class Large {
 public:
  explicit Large(const ConvProblem& problem)
      : p_(sized(problem)),
        window_(window_of(problem), kSmallIntegers),
        x_(static_cast<std::size_t>(x_size(p_)) * sizeof(Half)),
        y_(static_cast<std::size_t>(y_size(p_)) * sizeof(Half)),
        w_(static_cast<std::size_t>(w_size(p_)) * sizeof(Half)) {
    p_.dtype = DType::f16;
    const std::int64_t last_row = y_size(p_) - p_.L_out, boundary = (std::int64_t{1} << 31) - last_row;
    starts_[0] = (boundary - kWindow) / p_.S;  // the middle of the window contributes to element 2^31
    starts_[1] = p_.L_in - kWindow;
  }

  void check(ConvDirection direction, Algorithm algorithm) {
    const bool writes_y = direction == ConvDirection::forward, writes_x = direction == ConvDirection::dgrad;
    fill(x_, window_.x, p_.C_in, p_.L_in, 1, writes_x);
    fill(y_, window_.y, p_.C_out, p_.L_out, p_.S, writes_y);
    if (direction == ConvDirection::wgrad)
      CHECK_CUDA(cudaMemset(w_.data(), 0xff, bytes(w_size(p_))));
    else
      CHECK_CUDA(cudaMemcpy(w_.data(), window_.w.data(), bytes(w_size(p_)), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaDeviceSynchronize());
    const cudaStream_t stream = cuda::current_stream(0);
    const void* first = writes_x ? y_.data() : x_.data();
    const void* second = direction == ConvDirection::wgrad ? y_.data() : w_.data();
    void* out = writes_y ? y_.data() : writes_x ? x_.data() : w_.data();
    by_algorithm(algorithm)(GpuCall{p_, direction, first, second, nullptr, out, stream});
    CHECK_CUDA(cudaStreamSynchronize(stream));

    Array<Half> expected = window_.run(direction, Algorithm::reference, false);
    CHECK(expected.norm() > 0);
    if (direction == ConvDirection::wgrad) {
      for (std::int64_t i = 0; i < expected.size(); ++i) expected[i] = Half(2 * static_cast<float>(expected[i]));
      CHECK_MESSAGE(same_bits(read(w_, 0, expected.size()), expected), p_, " ", algorithm, " ", direction);
      return;
    }
    const std::int64_t channels = writes_y ? p_.C_out : p_.C_in, length = writes_y ? p_.L_out : p_.L_in;
    const std::int64_t step = writes_y ? p_.S : 1, count = expected.size() / channels;
    const DeviceBytes& result = writes_y ? y_ : x_;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t row = ((p_.N - 1) * channels + c) * length;
      Array<Half> wanted(count), silence(kWindow);
      for (std::int64_t i = 0; i < count; ++i) wanted[i] = expected[c * count + i];
      for (const std::int64_t start : starts_)
        CHECK_MESSAGE(same_bits(read(result, row + start * step, count), wanted), p_, " ", algorithm, " ", direction,
                      " channel ", c, " from ", start * step);
      CHECK(same_bits(read(result, row + starts_[0] * step + count + kWindow, kWindow), silence));
      CHECK(same_bits(read(result, row, kWindow), silence));
    }
  }

 private:
  static ConvProblem window_of(ConvProblem p) {
    p.N = 1;
    p.L_in = kWindow;
    return sized(p);
  }
  static std::size_t bytes(std::int64_t elements) { return static_cast<std::size_t>(elements) * sizeof(Half); }
  /// The array that is written is poisoned; the others are zero except in the windows.
  void fill(const DeviceBytes& to, const Array<Half>& values, std::int64_t channels, std::int64_t length, std::int64_t step,
            bool poison) {
    CHECK_CUDA(cudaMemset(to.data(), poison ? 0xff : 0, bytes(p_.N * channels * length)));
    if (poison) return;
    const std::int64_t count = values.size() / channels;
    for (std::int64_t c = 0; c < channels; ++c)
      for (const std::int64_t start : starts_)
        CHECK_CUDA(cudaMemcpy(static_cast<Half*>(to.data()) + ((p_.N - 1) * channels + c) * length + start * step,
                              values.data() + c * count, bytes(count), cudaMemcpyHostToDevice));
  }
  static Array<Half> read(const DeviceBytes& from, std::int64_t start, std::int64_t count) {
    Array<Half> values(count);
    CHECK_CUDA(cudaMemcpy(values.data(), static_cast<const Half*>(from.data()) + start, bytes(count), cudaMemcpyDeviceToHost));
    return values;
  }

  ConvProblem p_;
  ConvArrays<Half> window_;
  DeviceBytes x_, y_, w_;
  std::int64_t starts_[2] = {};  // low-rate positions
};

void check_large(const ConvProblem& problem, std::span<const Algorithm> algorithms) {
  Large large(problem);
  for (const Algorithm algorithm : algorithms)
    for (const ConvDirection direction : kDirections) large.check(direction, algorithm);
}

}  // namespace

TEST_CASE("random numbers: no worse than twice plain f32 sums") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  const ConvArrays<float> wide(sized({.N = 2, .C_in = 40, .C_out = 36, .L_in = 300, .K = 5, .S = 2, .P_l = 2, .P_r = 1}),
                               kNormal);
  const ConvArrays<float> depthwise(small_depthwise(), kNormal);
  for (const ConvDirection direction : kDirections) {
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::direct, Algorithm::gemm})
      CHECK_MESSAGE(error_over_plain(wide, direction, algorithm) < kErrorOverPlain, direction, " ", algorithm);
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
  for (const ConvArrays<float>& arrays : {ConvArrays<float>(small_depthwise(), kNormal), ConvArrays<float>(dense(), kNormal)})
    for (const Algorithm algorithm : kAlgorithms)
      for (const ConvDirection direction : kDirections) {
        if (cuda::can_implement(arrays.p, direction, algorithm, Precision::fp32, 0)) continue;
        bool intact = false;
        const Array<float> first = run_on_gpu(arrays, direction, by_algorithm(algorithm), intact);
        int different = 0;
        for (int turn = 1; turn < 100; ++turn)
          different += !same_bits(run_on_gpu(arrays, direction, by_algorithm(algorithm), intact), first);
        CHECK_MESSAGE(different == 0, arrays.p, " ", algorithm, " ", direction);
      }
}

TEST_CASE("recorded in a graph: a replay gives the eager bits, and again after other work") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const ConvArrays<float>& arrays : {ConvArrays<float>(small_depthwise(), kNormal), ConvArrays<float>(dense(), kNormal)})
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::direct, Algorithm::depthwise, Algorithm::gemm})
      for (const ConvDirection direction : kDirections) {
        if (cuda::can_implement(arrays.p, direction, algorithm, Precision::fp32, 0)) continue;
        bool intact = false;
        const Array<float> eager = run_on_gpu(arrays, direction, by_algorithm(algorithm), intact);
        const auto recorded = [&](const GpuCall& call) {
          cuda::Graph graph = cuda::capture([&] {
            GpuCall inside = call;
            inside.stream = cuda::current_stream(0);
            by_algorithm(algorithm)(inside);
          });
          const cuda::Buffer other(std::size_t{1} << 22, 0);
          for (int turn = 0; turn < 2; ++turn) {
            CHECK_CUDA(cudaMemsetAsync(call.out, 0xff, static_cast<std::size_t>(eager.size()) * sizeof(float), call.stream));
            CHECK_CUDA(cudaMemsetAsync(other.as<void>(), 0xff, other.bytes(), call.stream));
            graph.replay();
          }
        };
        const Array<float> replayed = run_on_gpu(arrays, direction, recorded, intact);
        CHECK_MESSAGE(same_bits(replayed, eager), arrays.p, " ", algorithm, " ", direction);
        CHECK(intact);
      }
}

TEST_CASE("several threads, each with its own stream and a problem of its own size") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t id = 0; id < wrong.size(); ++id)
    threads.emplace_back([&, id] {
      const cuda::Stream stream(0);
      const cuda::StreamScope scope(stream);
      ConvProblem problem = small_depthwise();
      problem.K += 4 * static_cast<std::int64_t>(id);  // the same kernels with more shared memory
      const ConvArrays<float> arrays(
          sized(problem), [&](auto& array, unsigned seed) { array.small_integers(seed + 10 * static_cast<unsigned>(id)); });
      for (int turn = 0; turn < (is_reduced() ? 2 : 20); ++turn)
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

TEST_CASE("more than 2^31 elements: windows at the boundary and at the end, silence elsewhere, every direction") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  std::size_t free = 0, total = 0;
  CHECK_CUDA(cudaMemGetInfo(&free, &total));
  if (free < (std::size_t{16} << 30)) SKIP_TEST("less than 16 GiB of free device memory");
  constexpr std::int64_t k29 = std::int64_t{1} << 29;
  // One row of y with 2^31 + 2^21 elements; four rows of 2^29 + 2^19 elements, dense and with one channel a group.
  check_large({.N = 1, .C_in = 1, .C_out = 1, .L_in = 2 * k29 + (1 << 20), .K = 4, .S = 2}, kAlgorithms);
  constexpr Algorithm kDense[] = {Algorithm::direct, Algorithm::gemm};
  check_large({.N = 2, .C_in = 2, .C_out = 2, .L_in = k29 / 2 + (1 << 18), .K = 4, .S = 2}, kDense);
  check_large({.N = 2, .C_in = 2, .C_out = 2, .L_in = k29 / 2 + (1 << 18), .K = 4, .S = 2, .G = 2}, kAlgorithms);
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
