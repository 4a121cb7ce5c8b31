#include "cuda/conv/tensor_core/choice/kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "../../../../../bench/shapes.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/mma_sync/mma_sync.hpp"
#include "cuda/conv/tensor_core/both_in_shared/preconverted/preconverted.hpp"
#include "cuda/conv/tensor_core/pipeline/mma_sync.hpp"
#include "cuda/conv/tensor_core/tensor_core.hpp"
#include "measured_kernels.hpp"
#include "support/cuda_conv_grid.hpp"
#include "support/skip.hpp"
#include "support/tensor_core_grid.hpp"

using namespace polyphase;
using namespace polyphase::testing;
namespace tensor_core = cuda::tensor_core;
using tensor_core::GatherKernel;

namespace {

/// An H200 as the model sees it.
cuda::DeviceProperties hopper() {
  cuda::DeviceProperties gpu;
  gpu.major = 9;
  gpu.sm_count = 132;
  gpu.shared_bytes_per_block = 227 * 1024;
  return gpu;
}

bool has_tensor_cores() { return cuda::device_count() > 0 && cuda::properties(0).arch() == 90 && !tensor_core::uses_mma(90); }

/// A line of kMeasuredKernels.
struct Measured {
  std::string name;
  ConvProblem problem;
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  std::map<std::string, double> us{};
};

Measured parse(const std::string& line) {
  std::istringstream in(line);
  std::string shape, direction, precision, kernel;
  in >> shape >> direction >> precision;
  const bench::Shape* found = bench::find_shape(shape);
  REQUIRE(found != nullptr);
  Measured one{concat(shape, ' ', direction, ' ', precision), bench::problem_of(*found)};
  one.problem.dtype = precision == "bf16" ? DType::bf16 : DType::f32;
  one.direction = direction == "forward" ? ConvDirection::forward : ConvDirection::dgrad;
  if (precision == "tf32") one.precision = Precision::tf32;
  for (double us = 0; in >> kernel >> us;) one.us[kernel] = us;
  return one;
}

/// A kernel's name in the table; for the preconverted kernel with its plan.
std::string name_in_table(const Measured& one, GatherKernel kernel, const cuda::DeviceProperties& gpu) {
  if (kernel != GatherKernel::preconverted) return std::string(tensor_core::name_of(kernel));
  const auto plan =
      tensor_core::make_preconverted_plan(one.problem, one.direction, one.precision, gpu.sm_count, gpu.shared_bytes_per_block);
  REQUIRE(plan.has_value());
  return concat("preconverted", plan->shape, '/', plan->tiling.slices);
}

constexpr double kMostLost = 1.05;

/// Small problems; each kernel takes some of them.
std::vector<ConvProblem> problems() {
  return {sized({.N = 2, .C_in = 32, .C_out = 24, .L_in = 520, .K = 4, .S = 2, .P_l = 1, .P_r = 1}),
          sized({.N = 1, .C_in = 64, .C_out = 40, .L_in = 256, .K = 16, .S = 8, .P_l = 4, .P_r = 4}),
          sized({.N = 1, .C_in = 32, .C_out = 64, .L_in = 300, .K = 5, .D = 3}),
          sized({.N = 2, .C_in = 32, .C_out = 32, .L_in = 515, .K = 3, .S = 2, .P_l = 1, .P_r = 1, .D = 2}),
          sized({.N = 1, .C_in = 48, .C_out = 128, .L_in = 640, .K = 3}),
          sized({.N = 1, .C_in = 96, .C_out = 80, .L_in = 129, .K = 7, .S = 2, .P_l = 3, .P_r = 3, .OP = 1, .G = 2}),
          sized({.N = 1, .C_in = 64, .C_out = 32, .L_in = 128, .K = 25, .S = 4, .P_l = 11, .P_r = 11, .OP = 1})};
}

/// Makes magnitudes differ, either between regions as large as a tile or within every tile.
struct Mixture {
  const char* name;
  std::function<void(ConvArrays<float>&)> make;
};

/// array[i] *= 2^exponent_of(i / inner % size), which varies along one dimension.
template <class ExponentOf>
void scale_along(Array<float>& array, std::int64_t inner, std::int64_t size, const ExponentOf& exponent_of) {
  for (std::int64_t i = 0; i < array.size(); ++i) array[i] = std::ldexp(array[i], exponent_of(i / inner % size));
}

std::vector<Mixture> mixtures() {
  const auto powers = [](std::int64_t i) { return -10 * static_cast<int>(i % 10); };
  return {{"half of each row",
           [](ConvArrays<float>& a) {
             const auto quiet_behind = [](std::int64_t half) { return [half](std::int64_t i) { return i < half ? 0 : -17; }; };
             scale_along(a.x, 1, a.p.L_in, quiet_behind(a.p.L_in / 2));
             scale_along(a.y, 1, a.p.L_out, quiet_behind(a.p.L_out / 2));
           }},
          {"half of the channels",
           [](ConvArrays<float>& a) {
             scale_along(a.x, a.p.L_in, a.p.C_in, [&](std::int64_t i) { return i < a.p.C_in / 2 ? 0 : -40; });
             scale_along(a.y, a.p.L_out, a.p.C_out, [&](std::int64_t i) { return i < a.p.C_out / 2 ? 0 : -40; });
           }},
          {"weights by their first dimension",
           [=](ConvArrays<float>& a) { scale_along(a.w, a.p.channels_out_per_group() * a.p.K, a.p.C_in, powers); }},
          {"weights by their second dimension",
           [=](ConvArrays<float>& a) { scale_along(a.w, a.p.K, a.p.channels_out_per_group(), powers); }},
          {"an outlier and one loud number of 64", [](ConvArrays<float>& a) {
             for (Array<float>* array : {&a.x, &a.y}) {
               scale_along(*array, 1, 64, [](std::int64_t i) { return i == 0 ? 0 : -17; });
               (*array)[array->size() / 2] = 0x1p33F;
             }
           }}};
}

}  // namespace

TEST_CASE("on no measured case what the model takes is 5 % slower than the fastest form") {
  const cuda::DeviceProperties gpu = hopper();
  std::istringstream lines(kMeasuredKernels);
  int cases = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const Measured one = parse(line);
    const auto all = tensor_core::gather_kernels({one.problem, one.direction, one.precision}, gpu);
    REQUIRE(!all.empty());
    const std::string chosen = name_in_table(one, all.front().kernel, gpu);
    const double fastest = std::min_element(one.us.begin(), one.us.end(), [](const auto& a, const auto& b) {
                             return a.second < b.second;
                           })->second;
    const auto found = one.us.find(chosen);
    CHECK_MESSAGE(found != one.us.end(), one.name, ": ", chosen, " was among the slow ones");
    if (found != one.us.end())
      CHECK_MESSAGE(found->second <= kMostLost * fastest, one.name, ": ", chosen, " takes ", found->second, " us, ", fastest,
                    " is possible");
    ++cases;
  }
  CHECK(cases >= 90);
}

TEST_CASE("convolutions of few or short samples, and of 256 channels, in 16 bits go to a fast kernel") {
  struct Case {
    std::int64_t N, C, L, K;
    double stationary, preconverted;  // microseconds on an H200, 2026-11-28
  };
  for (const Case& c :
       {Case{16, 256, 6880, 3, 131.1, 123.6}, Case{16, 256, 6888, 3, 164.5, 123.6}, Case{16, 256, 6912, 3, 130.4, 125.0},
        Case{1, 256, 256, 3, 25.5, 10.2}, Case{1, 256, 256, 1, 13.7, 8.3}, Case{1, 256, 1024, 3, 28.9, 10.6},
        Case{1, 256, 6888, 3, 29.5, 12.8}, Case{1, 256, 27552, 3, 45.6, 34.8}, Case{4, 256, 2048, 3, 29.1, 17.3},
        Case{16, 256, 1024, 3, 29.2, 24.7}, Case{1, 128, 55104, 7, 32.1, 38.2}}) {
    const std::int64_t padding = (c.K - 1) / 2;
    const ConvProblem problem = sized(
        {.N = c.N, .C_in = c.C, .C_out = c.C, .L_in = c.L, .K = c.K, .P_l = padding, .P_r = padding, .dtype = DType::f16});
    const GatherKernel chosen =
        tensor_core::gather_kernels({problem, ConvDirection::dgrad, Precision::fp32}, hopper()).front().kernel;
    CAPTURE(problem);
    CHECK(chosen == (c.stationary < c.preconverted ? GatherKernel::stationary : GatherKernel::preconverted));
  }
  // source_bulk takes 29.9 us, stationary 25.0 (H200, 2026-11-28), and it can add a residual.
  const ConvProblem few = sized({.N = 1, .C_in = 64, .C_out = 64, .L_in = 240000, .K = 1, .dtype = DType::f16});
  CHECK(tensor_core::gather_kernels({few, ConvDirection::dgrad, Precision::fp32}, hopper()).front().kernel ==
        GatherKernel::stationary);
}

TEST_CASE("estimates are near the measured times") {
  const cuda::DeviceProperties gpu = hopper();
  std::istringstream lines(kMeasuredKernels);
  std::map<GatherKernel, int> estimates;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const Measured one = parse(line);
    for (const auto& [kernel, seconds] : tensor_core::gather_kernels({one.problem, one.direction, one.precision}, gpu)) {
      const auto found = one.us.find(name_in_table(one, kernel, gpu));
      if (found == one.us.end()) continue;
      CHECK_MESSAGE(seconds * 1e6 > 0.6 * found->second, one.name, " ", found->first, ": ", seconds * 1e6);
      CHECK_MESSAGE(seconds * 1e6 < 1.5 * found->second, one.name, " ", found->first, ": ", seconds * 1e6);
      ++estimates[kernel];
    }
  }
  for (const GatherKernel kernel : tensor_core::kGatherKernels)
    CHECK_MESSAGE(estimates[kernel] > 0, tensor_core::name_of(kernel));
}

TEST_CASE("more multiprocessors and fewer samples take less time") {
  cuda::DeviceProperties small = hopper();
  small.sm_count = 66;
  std::istringstream lines(kMeasuredKernels);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const Measured one = parse(line);
    ConvProblem few = one.problem;
    few.N = std::max<std::int64_t>(1, few.N / 4);
    for (const GatherKernel kernel : tensor_core::kGatherKernels) {
      const auto all = tensor_core::kernel_cost(kernel, {one.problem, one.direction, one.precision}, hopper());
      if (!all) continue;
      CHECK(*all > 0);
      const auto slower = tensor_core::kernel_cost(kernel, {one.problem, one.direction, one.precision}, small);
      const auto quicker = tensor_core::kernel_cost(kernel, {few, one.direction, one.precision}, hopper());
      if (slower) CHECK_MESSAGE(*slower >= *all, one.name, " ", tensor_core::name_of(kernel));
      if (quicker && few.N < one.problem.N) CHECK_MESSAGE(*quicker <= *all, one.name, " ", tensor_core::name_of(kernel));
    }
  }
}

TEST_CASE("a problem that one kernel alone can do is done by it, however few its channels; an empty batch by none") {
  const cuda::DeviceProperties gpu = hopper();
  ConvProblem gaps = sized({.N = 1, .C_in = 16, .C_out = 16, .L_in = 90, .K = 3, .S = 2});
  CHECK(tensor_core::gather_kernels({gaps, ConvDirection::forward, Precision::fp32}, gpu).size() > 1);
  gaps.dtype = DType::bf16;  // kernels that fill in a zero tap would turn an infinity into NaN
  for (const std::int64_t channels : {8, 16, 32}) {
    gaps.C_in = channels;
    const auto all = tensor_core::gather_kernels({gaps, ConvDirection::forward, Precision::fp32}, gpu);
    REQUIRE(all.size() == 1);
    CHECK(all.front().kernel == GatherKernel::preconverted);
  }
  gaps.N = 0;
  CHECK(tensor_core::gather_kernels({gaps, ConvDirection::forward, Precision::fp32}, gpu).empty());
}

TEST_CASE("arrays of another alignment take the kernels that can read them") {
  const cuda::DeviceProperties gpu = hopper();
  ConvProblem p =
      sized({.N = 2, .C_in = 64, .C_out = 32, .L_in = 4096, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .dtype = DType::bf16});
  const auto has = [&](GatherKernel kernel, int source) {
    const cuda::Alignment at{.source = source % 32};
    return tensor_core::cost_counts(kernel, {p, ConvDirection::forward, Precision::fp32, at}, gpu).has_value();
  };
  CHECK(has(GatherKernel::phased_stride2, 32));
  CHECK(!has(GatherKernel::phased_stride2, 34));
  CHECK(has(GatherKernel::source_bulk, 34));
}

TEST_CASE("small integers, bit for bit: every form of every problem that it can do") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  std::set<GatherKernel> seen;
  double norm = 0;
  const auto check = [&]<class E>(ConvProblem p, ConvDirection direction, Precision precision, E) {
    p.dtype = dtype_of<E>;
    const ConvArrays<E> arrays(p, kSmallIntegers);
    const Array<E> expected = arrays.run(direction, Algorithm::reference);
    for (const auto& candidate : tensor_core::gather_kernels({p, direction, precision}, cuda::properties(0))) {
      const auto call = [&](const GpuCall& at) {
        tensor_core::gather_by(candidate.kernel,
                               {at.problem, at.direction, precision, at.first, at.second, at.bias, at.out, {}, 0, at.stream});
      };
      bool intact = false;
      const Array<E> got = run_on_gpu(arrays, direction, call, intact);
      CHECK_MESSAGE(same_bits(got, expected), p, ' ', direction, ' ', precision, ' ', tensor_core::name_of(candidate.kernel));
      CHECK_MESSAGE(intact, p, ": wrote outside its output");
      seen.insert(candidate.kernel);
    }
    norm += expected.norm();
  };
  for (const ConvProblem& p : problems()) {
    for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
      check(p, direction, Precision::fp32, float{});
      check(p, direction, Precision::tf32, float{});
      check(p, direction, Precision::fp32, Half{});
      check(p, direction, Precision::fp32, BFloat16{});
    }
  }
  CHECK(norm > 0);
  CHECK(seen.size() == std::size(tensor_core::kGatherKernels));
}

TEST_CASE("numbers of mixed magnitudes: every kernel's fp32 is as accurate as plain f32 sums") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  std::set<GatherKernel> seen;
  for (const ConvProblem& p : problems()) {
    for (const Mixture& mixture : mixtures()) {
      ConvArrays<float> arrays(p, kNormal);
      mixture.make(arrays);
      // No bias: it would hide the errors of small sums.
      for (Array<float>* bias : {&arrays.bias_in, &arrays.bias_out})
        for (std::int64_t i = 0; i < bias->size(); ++i) (*bias)[i] = 0;
      for (const ConvDirection direction : {ConvDirection::forward, ConvDirection::dgrad}) {
        for (const auto& candidate : tensor_core::gather_kernels({p, direction, Precision::fp32}, cuda::properties(0))) {
          const auto call = [&](const GpuCall& at) {
            tensor_core::gather_by(
                candidate.kernel,
                {at.problem, at.direction, Precision::fp32, at.first, at.second, nullptr, at.out, {}, 0, at.stream});
          };
          bool intact = false;
          const Array<float> got = run_on_gpu(arrays, direction, call, intact, false);
          check_as_accurate_as_plain(
              got, arrays, direction,
              concat(p, ' ', direction, ' ', tensor_core::name_of(candidate.kernel), ", ", mixture.name));
          seen.insert(candidate.kernel);
        }
      }
    }
  }
  // The other kernels have one part, or 16-bit operands.
  CHECK(seen.count(GatherKernel::phased_stride4) + seen.count(GatherKernel::preconverted) +
            seen.count(GatherKernel::source_tma) + seen.count(GatherKernel::source_bulk) + seen.count(GatherKernel::stride1) +
            seen.count(GatherKernel::stationary) ==
        6);
}

TEST_CASE("the choice depends on the place of the arrays within a sector, and on nothing else of it") {
  if (!has_tensor_cores()) SKIP_TEST("no GPU of compute capability 9.0");
  ConvProblem p =
      sized({.N = 2, .C_in = 128, .C_out = 64, .L_in = 4096, .K = 4, .S = 2, .P_l = 1, .P_r = 1, .dtype = DType::bf16});
  const auto at = [&](std::uintptr_t source) {
    const cuda::Alignment begins = cuda::alignment_of(reinterpret_cast<const void*>(source), nullptr);
    return tensor_core::chosen_kernel({p, ConvDirection::forward, Precision::fp32, begins}, 0);
  };
  REQUIRE(at(0).has_value());
  REQUIRE(at(2).has_value());
  CHECK(at(0)->kernel == GatherKernel::phased_stride2);
  CHECK(at(2)->kernel != GatherKernel::phased_stride2);
  CHECK(at(64)->kernel == at(0)->kernel);
}
