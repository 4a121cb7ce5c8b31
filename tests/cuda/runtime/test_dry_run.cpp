#include "cuda/runtime/dry_run.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "conv/problem.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/memory/workspace.hpp"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"
#include "support/skip.hpp"

namespace pp = polyphase;
namespace cuda = polyphase::cuda;

namespace {

pp::ConvProblem problem_of(std::int64_t channels, std::int64_t length, pp::DType dtype) {
  pp::ConvProblem problem;
  problem.N = 2, problem.C_in = channels, problem.C_out = channels, problem.L_in = length, problem.K = 4, problem.S = 2;
  problem.P_l = problem.P_r = 1, problem.dtype = dtype;
  problem.L_out = pp::conv_transpose1d_length(length, 4, 2, 1, 1, 0, 1);
  return problem;
}

/// The three directions of a problem, with or without a workspace.
struct Case {
  explicit Case(const pp::ConvProblem& p) : problem(p) {
    const pp::TensorOptions options{p.dtype, pp::Device::cuda()};
    x = pp::Tensor::randn({p.N, p.C_in, p.L_in}).to(p.dtype).to(options.device);
    w = pp::Tensor::randn({p.C_in, p.C_out, p.K}).to(p.dtype).to(options.device);
    y = pp::Tensor::zeros({p.N, p.C_out, p.L_out}, options), dx = pp::Tensor::zeros(x.shape(), options);
    dw = pp::Tensor::zeros(w.shape(), options);
    w.storage().mark_exported();  // no cached packing
    x.storage().mark_exported();
  }
  void run() const {
    pp::Backend& backend = pp::backend_of(pp::Device::cuda());
    backend.conv_forward(problem, x, w, {}, y, pp::Algorithm::automatic, pp::Precision::fp32);
    backend.conv_dgrad(problem, y, w, {}, dx, pp::Algorithm::automatic, pp::Precision::fp32);
    backend.conv_wgrad(problem, x, y, dw, pp::Algorithm::automatic, pp::Precision::fp32);
  }
  [[nodiscard]] std::vector<float> results() const {
    std::vector<float> all;
    for (const pp::Tensor& each : {y, dx, dw})
      for (const float value : each.to(pp::DType::f32).to_vector<float>()) all.push_back(value);
    return all;
  }

  pp::ConvProblem problem;
  pp::Tensor x, w, y, dx, dw;
};

}  // namespace

TEST_CASE("a convolution runs in the workspace that was measured, with the same bits, and in no smaller one") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const pp::DType dtype : {pp::DType::f32, pp::DType::f16, pp::DType::f64})
    for (const std::int64_t channels : {4, 64, 256}) {
      const Case all(problem_of(channels, 1000, dtype));
      all.run();
      const std::vector<float> expected = all.results();
      const std::size_t bytes = cuda::measure_workspace(0, [&](CUstream_st*) { all.run(); });
      CAPTURE(dtype);
      CAPTURE(channels);
      CHECK(all.results() == expected);  // nothing has run
      const cuda::Buffer memory(bytes + cuda::Workspace::kAlignment, 0);
      {
        const cuda::Workspace workspace(0, memory.as<void>(), bytes);
        const pp::MemoryStats before = cuda::memory_stats();
        all.run();
        CHECK(cuda::memory_stats().allocations == before.allocations);
      }
      CHECK(all.results() == expected);
      if (bytes < cuda::Workspace::kAlignment) continue;
      const cuda::Workspace workspace(0, memory.as<void>(), bytes - cuda::Workspace::kAlignment);
      CHECK_THROWS_AS(all.run(), pp::OutOfMemory);
    }
}

TEST_CASE("what is measured reads and copies no memory") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  for (const pp::DType dtype : {pp::DType::f32, pp::DType::f16, pp::DType::f64})
    for (const pp::Activation activation : {pp::Activation::none, pp::Activation::tanh}) {
      CAPTURE(dtype);
      const pp::ConvProblem problem = problem_of(16, 100, dtype);
      const auto nowhere = [&](const pp::Shape& shape) {
        void* const address = reinterpret_cast<void*>(std::uintptr_t{1} << 40U);
        const auto bytes = static_cast<std::size_t>(shape.numel()) * pp::size_of(dtype);
        return pp::Tensor::over(pp::Storage(address, bytes, pp::Device::cuda(), {}), shape, pp::contiguous_strides(shape), 0,
                                dtype);
      };
      const pp::Tensor x = nowhere({2, 16, 100}), y = nowhere({2, 16, problem.L_out}), w = nowhere({16, 16, 4});
      pp::ConvEpilogue epilogue{.activation = activation};
      epilogue.residual = nowhere(y.shape()), epilogue.before = nowhere(y.shape());
      CHECK_NOTHROW((void)cuda::measure_workspace(0, [&](CUstream_st*) {
        pp::backend_of(x.device())
            .conv_activated(problem, pp::ConvDirection::forward, x, w, {}, y, {}, epilogue, pp::Algorithm::automatic,
                            pp::Precision::fp32);
      }));
    }
  CHECK_FALSE(cuda::in_dry_run());
  CHECK(pp::Tensor::ones({3}, {.device = pp::Device::cuda()}).to_vector<float>() == std::vector<float>{1, 1, 1});
}

TEST_CASE("an exception of the work passes through, and the device works afterwards") {
  if (cuda::device_count() == 0) SKIP_TEST("no CUDA device");
  CHECK_THROWS_AS((void)cuda::measure_workspace(0, [](CUstream_st*) { throw std::logic_error("mine"); }), std::logic_error);
  CHECK_THROWS_AS((void)cuda::measure_workspace(0, [](CUstream_st* stream) { cuda::wait_for(stream); }), pp::DeviceError);
  CHECK(cuda::measure_workspace(0, [](CUstream_st*) {}) == 0);
  CHECK(pp::Tensor::ones({3}, {.device = pp::Device::cuda()}).to_vector<float>() == std::vector<float>{1, 1, 1});
}
