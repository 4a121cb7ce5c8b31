#pragma once
// cuDNN's convolutions as PyTorch uses them: ConvTranspose1d's forward is a convolution's backward-data.

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"
#include "gpu_check.hpp"

namespace polyphase::bench {

enum class Layout { ncl, nhwc };

/// One of its algorithms for a problem, in its own numbers.
struct CudnnAlgorithm {
  int algorithm = 0, math = 0;
  std::size_t workspace = 0;
};

/// The fastest algorithm that cuDNN has for one problem, ready to run.
class CudnnPeer {
 public:
  virtual ~CudnnPeer() = default;
  /// Operands and result as in conv/problem.hpp; with `nhwc` the elements are those of that layout.
  virtual void run(const DeviceOperands& at) = 0;
};

/// `algorithm`, or where that is nothing, and then it is set: every algorithm that cuDNN lists is run on `at`, those again that
/// may be the fastest, and the fastest is kept. Null
/// with a reason where cuDNN cannot do the problem: uneven padding, output padding past the stride, an unsupported combination.
/// `precision` ieee and fp32 are cuDNN without tensor cores, tf32 with; halves always with.
[[nodiscard]] std::unique_ptr<CudnnPeer> make_cudnn_peer(const ConvProblem& problem, ConvDirection direction,
                                                         Precision precision, Layout layout, const DeviceOperands& at,
                                                         cudaStream_t stream, std::optional<CudnnAlgorithm>& algorithm,
                                                         std::string& reason);

/// "9.19.0".
[[nodiscard]] std::string cudnn_version();

}  // namespace polyphase::bench
