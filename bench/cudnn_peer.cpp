#include "cudnn_peer.hpp"

#include <cudnn.h>

#include <array>
#include <vector>

#include "cuda/allocator.hpp"
#include "cuda/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::bench {
namespace {

void check(cudnnStatus_t status, const char* what) {
  require<DeviceError>(status == CUDNN_STATUS_SUCCESS, "cudnn: ", what, ": ", cudnnGetErrorString(status));
}

/// cuDNN's descriptors of one problem. The convolution reads y and writes x.
struct Descriptors {
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;

  Descriptors(const ConvProblem& p, cudnnMathType_t math, Layout layout, cudaStream_t stream) {
    check(cudnnCreate(&handle), "create");
    check(cudnnSetStream(handle, stream), "set stream");
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
    (void)cudnnDestroy(handle);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
};

constexpr float kOne = 1, kZero = 0;
constexpr int kAlgorithms = 16;  // more than any direction has, with and without tensor cores

/// The fastest that worked.
template <class Perf, std::size_t kCount>
std::optional<Perf> best_of(const std::array<Perf, kCount>& found, int count) {
  for (int i = 0; i < count; ++i) {
    const Perf& perf = found[static_cast<std::size_t>(i)];
    if (perf.status != CUDNN_STATUS_SUCCESS) continue;
    return perf;
  }
  return std::nullopt;
}

class Peer final : public CudnnPeer {
 public:
  Peer(const ConvProblem& problem, ConvDirection direction, cudnnMathType_t math, Layout layout, cudaStream_t stream)
      : direction_(direction), math_(math), d_(problem, math, layout, stream) {
    int count = 0;
    if (direction == ConvDirection::forward) {
      std::array<cudnnConvolutionBwdDataAlgoPerf_t, kAlgorithms> found{};
      check(cudnnFindConvolutionBackwardDataAlgorithm(d_.handle, d_.w, d_.x, d_.conv, d_.y, kAlgorithms, &count, found.data()),
            "search");
      take(best_of(found, count), backward_data_);
    } else if (direction == ConvDirection::dgrad) {
      std::array<cudnnConvolutionFwdAlgoPerf_t, kAlgorithms> found{};
      check(cudnnFindConvolutionForwardAlgorithm(d_.handle, d_.y, d_.w, d_.conv, d_.x, kAlgorithms, &count, found.data()),
            "search");
      take(best_of(found, count), forward_);
    } else {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kAlgorithms> found{};
      check(
          cudnnFindConvolutionBackwardFilterAlgorithm(d_.handle, d_.y, d_.x, d_.conv, d_.w, kAlgorithms, &count, found.data()),
          "search");
      take(best_of(found, count), backward_filter_);
    }
  }

  void run(void* x, void* w, void* y) override {
    void* space = workspace_->as<void>();
    const std::size_t bytes = workspace_->bytes();
    if (direction_ == ConvDirection::forward)
      check(cudnnConvolutionBackwardData(d_.handle, &kOne, d_.w, w, d_.x, x, d_.conv, backward_data_, space, bytes, &kZero,
                                         d_.y, y),
            "run");
    else if (direction_ == ConvDirection::dgrad)
      check(cudnnConvolutionForward(d_.handle, &kOne, d_.y, y, d_.w, w, d_.conv, forward_, space, bytes, &kZero, d_.x, x),
            "run");
    else
      check(cudnnConvolutionBackwardFilter(d_.handle, &kOne, d_.y, y, d_.x, x, d_.conv, backward_filter_, space, bytes, &kZero,
                                           d_.w, w),
            "run");
  }

 private:
  template <class Perf, class Algo>
  void take(const std::optional<Perf>& best, Algo& algorithm) {
    require<NotImplemented>(best.has_value(), "cudnn: no algorithm");
    algorithm = best->algo;
    // What is reported for FMA may be the default, which stands for tf32.
    if (math_ != CUDNN_FMA_MATH) check(cudnnSetConvolutionMathType(d_.conv, best->mathType), "math type");
    workspace_ = std::make_unique<cuda::Buffer>(best->memory, 0);
  }

  ConvDirection direction_;
  cudnnMathType_t math_;
  Descriptors d_;
  std::unique_ptr<cuda::Buffer> workspace_;
  cudnnConvolutionBwdDataAlgo_t backward_data_{};
  cudnnConvolutionFwdAlgo_t forward_{};
  cudnnConvolutionBwdFilterAlgo_t backward_filter_{};
};

}  // namespace

std::unique_ptr<CudnnPeer> make_cudnn_peer(const ConvProblem& problem, ConvDirection direction, Precision precision,
                                           Layout layout, cudaStream_t stream) {
  if (problem.P_l != problem.P_r || problem.OP >= problem.S + (problem.OP == 0 ? 1 : 0)) return nullptr;
  const cudnnMathType_t math =
      problem.dtype == DType::f32 && precision != Precision::tf32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
  try {
    return std::make_unique<Peer>(problem, direction, math, layout, stream);
  } catch (const Error&) {
    (void)cudaGetLastError();
    return nullptr;
  }
}

std::string cudnn_version() {
  const std::size_t version = cudnnGetVersion();
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace polyphase::bench
