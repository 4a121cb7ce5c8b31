#pragma once
// cuDNN's convolutions, the way PyTorch uses them: ConvTranspose1d's forward is a convolution's backward-data.

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "conv/algorithm.hpp"
#include "conv/problem.hpp"

namespace polyphase::bench {

enum class Layout { ncl, nhwc };

/// The fastest algorithm that cuDNN's search finds for one problem, ready to run.
class CudnnPeer {
 public:
  virtual ~CudnnPeer() = default;
  /// Operands and result as conv/problem.hpp has them; in `nhwc` their elements count as laid out that way.
  virtual void run(void* x, void* w, void* y) = 0;
};

/// Nothing where cuDNN cannot do the problem: uneven padding, output padding past the stride, an unsupported combination.
/// `precision` ieee is cuDNN without tensor cores, tf32 with.
[[nodiscard]] std::unique_ptr<CudnnPeer> make_cudnn_peer(const ConvProblem& problem, ConvDirection direction,
                                                         Precision precision, Layout layout, cudaStream_t stream);

/// "9.19.0", or why there is none.
[[nodiscard]] std::string cudnn_version();

}  // namespace polyphase::bench
