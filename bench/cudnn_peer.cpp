#include "cudnn_peer.hpp"

#include <cudnn.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

void check(cudnnStatus_t status, const char* what) {
  require<DeviceError>(status == CUDNN_STATUS_SUCCESS, "cudnn: ", what, ": ", cudnnGetErrorString(status));
}

/// One handle for all: making it takes as long as many convolutions.
cudnnHandle_t shared_handle(cudaStream_t stream) {
  static const cudnnHandle_t handle = [] {
    cudnnHandle_t made = nullptr;
    check(cudnnCreate(&made), "create");
    return made;
  }();
  check(cudnnSetStream(handle, stream), "set stream");
  return handle;
}

/// cuDNN's descriptors of one problem. The convolution reads y and writes x.
struct Descriptors {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;

  Descriptors(const ConvProblem& p, cudnnMathType_t math, Layout layout, cudaStream_t stream) : handle(shared_handle(stream)) {
    const cudnnDataType_t type = p.dtype == DType::f16    ? CUDNN_DATA_HALF
                                 : p.dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16
                                 : p.dtype == DType::f64  ? CUDNN_DATA_DOUBLE
                                                          : CUDNN_DATA_FLOAT;
    const cudnnTensorFormat_t format = layout == Layout::ncl ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
    const auto size = [](std::int64_t value) { return static_cast<int>(value); };
    check(cudnnCreateTensorDescriptor(&x), "describe x");
    check(cudnnCreateTensorDescriptor(&y), "describe y");
    check(cudnnCreateFilterDescriptor(&w), "describe w");
    check(cudnnCreateConvolutionDescriptor(&conv), "describe");
    check(cudnnSetTensor4dDescriptor(x, format, type, size(p.N), size(p.C_in), 1, size(p.L_in)), "describe x");
    check(cudnnSetTensor4dDescriptor(y, format, type, size(p.N), size(p.C_out), 1, size(p.L_out)), "describe y");
    check(cudnnSetFilter4dDescriptor(w, type, format, size(p.C_in), size(p.channels_out_per_group()), 1, size(p.K)),
          "describe w");
    check(cudnnSetConvolution2dDescriptor(conv, 0, size(p.P_l), 1, size(p.S), 1, size(p.D), CUDNN_CROSS_CORRELATION,
                                          p.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
          "describe");
    check(cudnnSetConvolutionGroupCount(conv, size(p.G)), "groups");
    check(cudnnSetConvolutionMathType(conv, math), "math type");
  }
  ~Descriptors() {
    (void)cudnnDestroyConvolutionDescriptor(conv);
    (void)cudnnDestroyFilterDescriptor(w);
    (void)cudnnDestroyTensorDescriptor(x);
    (void)cudnnDestroyTensorDescriptor(y);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
};

constexpr float kOne = 1, kZero = 0;
constexpr std::size_t kAlgorithms = 16;  // more than any direction has, with and without tensor cores

/// The algorithms that cuDNN can run, in its order.
template <class Perf>
std::vector<CudnnAlgorithm> possible(const std::array<Perf, kAlgorithms>& listed, int count) {
  std::vector<CudnnAlgorithm> all;
  cudnnStatus_t failure = CUDNN_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < count; ++i) {
    const Perf& perf = listed[static_cast<std::size_t>(i)];
    if (perf.status == CUDNN_STATUS_SUCCESS)
      all.push_back({static_cast<int>(perf.algo), static_cast<int>(perf.mathType), perf.memory});
    else
      failure = perf.status;
  }
  require<NotImplemented>(!all.empty(), "cudnn: no algorithm out of ", count, ": ", cudnnGetErrorString(failure));
  return all;
}

class Peer final : public CudnnPeer {
 public:
  Peer(const ConvProblem& problem, ConvDirection direction, cudnnMathType_t math, Layout layout, const DeviceOperands& at,
       cudaStream_t stream, std::optional<CudnnAlgorithm>& known)
      : direction_(direction), math_(math), stream_(stream), d_(problem, math, layout, stream) {
    if (!known) known = search(at);
    take(*known);
  }

  void run(const DeviceOperands& at) override {
    void* space = workspace_->as<void>();
    const std::size_t bytes = workspace_->bytes();
    if (direction_ == ConvDirection::forward)
      check(cudnnConvolutionBackwardData(d_.handle, &kOne, d_.w, at.w, d_.x, at.x, d_.conv,
                                         static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm_), space, bytes, &kZero, d_.y,
                                         at.y),
            "run");
    else if (direction_ == ConvDirection::dgrad)
      check(cudnnConvolutionForward(d_.handle, &kOne, d_.y, at.y, d_.w, at.w, d_.conv,
                                    static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_), space, bytes, &kZero, d_.x, at.x),
            "run");
    else
      check(cudnnConvolutionBackwardFilter(d_.handle, &kOne, d_.y, at.y, d_.x, at.x, d_.conv,
                                           static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm_), space, bytes, &kZero, d_.w,
                                           at.w),
            "run");
  }

 private:
  /// The fastest of its algorithms.
  CudnnAlgorithm search(const DeviceOperands& at) {
    constexpr double kHopeless = 3;    // times the fastest so far: not timed further
    constexpr double kLoadingMs = 20;  // a first run may spend this on loading its kernel
    double best_ms = 0;
    CudnnAlgorithm best;
    for (const CudnnAlgorithm& candidate : list()) {
      const std::optional<double> first_ms = time(candidate, at, 0, 1);
      if (!first_ms || (best_ms > 0 && *first_ms > kHopeless * best_ms + kLoadingMs)) continue;
      const double ms = time(candidate, at, 2, 5).value_or(*first_ms);
      if (best_ms == 0 || ms < best_ms) best_ms = ms, best = candidate;
    }
    require<NotImplemented>(best_ms > 0, "cudnn: no algorithm that it lists runs");
    return best;
  }

  /// All algorithms, in cuDNN's expected order of speed.
  std::vector<CudnnAlgorithm> list() {
    int count = 0;
    if (direction_ == ConvDirection::forward) {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, kAlgorithms> listed{};
      check(
          cudnnGetConvolutionBackwardDataAlgorithm_v7(d_.handle, d_.w, d_.x, d_.conv, d_.y, kAlgorithms, &count, listed.data()),
          "list");
      return possible(listed, count);
    }
    if (direction_ == ConvDirection::dgrad) {
      std::array<cudnnConvolutionFwdAlgoPerf_t, kAlgorithms> listed{};
      check(cudnnGetConvolutionForwardAlgorithm_v7(d_.handle, d_.y, d_.w, d_.conv, d_.x, kAlgorithms, &count, listed.data()),
            "list");
      return possible(listed, count);
    }
    std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kAlgorithms> listed{};
    check(
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(d_.handle, d_.y, d_.x, d_.conv, d_.w, kAlgorithms, &count, listed.data()),
        "list");
    return possible(listed, count);
  }

  void take(const CudnnAlgorithm& found) {
    algorithm_ = found.algorithm;
    // An algorithm listed for FMA may have the default math type, which means tf32.
    if (math_ != CUDNN_FMA_MATH)
      check(cudnnSetConvolutionMathType(d_.conv, static_cast<cudnnMathType_t>(found.math)), "math type");
    workspace_.reset();
    workspace_ = std::make_unique<cuda::Buffer>(found.workspace, 0);
  }

  /// Milliseconds of a run: the mean of `runs` after `before` others. Empty if it refuses, or there is not enough memory.
  std::optional<double> time(const CudnnAlgorithm& found, const DeviceOperands& at, int before, int runs) {
    try {
      take(found);
      cuda::Event begin(true), end(true);
      for (int i = 0; i < before; ++i) run(at);
      begin.record(stream_);
      for (int i = 0; i < runs; ++i) run(at);
      end.record(stream_);
      end.synchronize();
      return static_cast<double>(cuda::Event::elapsed_ms(begin, end)) / runs;
    } catch (const Error&) {
      (void)cudaGetLastError();
      return std::nullopt;
    }
  }

  ConvDirection direction_;
  cudnnMathType_t math_;
  cudaStream_t stream_;
  Descriptors d_;
  std::unique_ptr<cuda::Buffer> workspace_;
  int algorithm_ = 0;
};

}  // namespace

std::unique_ptr<CudnnPeer> make_cudnn_peer(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                           Layout layout, const DeviceOperands& at, cudaStream_t stream,
                                           std::optional<CudnnAlgorithm>& algorithm, std::string& reason) {
  if (problem.P_l != problem.P_r || problem.OP >= problem.S + (problem.OP == 0 ? 1 : 0)) {
    reason = "cudnn: it needs even padding and an output padding below the stride";
    return nullptr;
  }
  // The default math type allows rounding of f32 to tf32 and no further.
  const bool is_half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const cudnnMathType_t math = is_half                                                       ? CUDNN_TENSOR_OP_MATH
                               : problem.dtype == DType::f32 && precision != Precision::tf32 ? CUDNN_FMA_MATH
                                                                                             : CUDNN_DEFAULT_MATH;
  try {
    return std::make_unique<Peer>(problem, direction, math, layout, at, stream, algorithm);
  } catch (const Error& error) {
    (void)cudaGetLastError();
    reason = error.what();
    return nullptr;
  }
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace polyphase::bench
