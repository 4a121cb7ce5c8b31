#pragma once
// Packings of weights that are copies of their first elements, and are counted.

#include <cstdint>

#include <polyphase/polyphase.hpp>

#include "cuda/conv/packed_weights.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::testing {

inline constexpr std::size_t kPackedBytes = 4 * sizeof(float);

/// Packs by copying four floats, and counts.
struct Packing {
  int* count;
  void operator()(const void* weights, void* to, cudaStream_t stream) const {
    ++*count;
    CHECK_CUDA(cudaMemcpyAsync(to, weights, kPackedBytes, cudaMemcpyDeviceToDevice, stream));
  }
};

inline Tensor weights_of(float value) { return Tensor::full({8}, value, {.device = Device::cuda()}); }

struct Uses {
  int packs = 0;
  /// Writes the first element of the packed copy of the weights that begin at `offset` to `out` (1).
  void use(const Tensor& w, const Tensor& out, std::int64_t key = 0, std::int64_t offset = 0, bool keep = true) {
    const cudaStream_t stream = cuda::current_stream(0);
    const void* data = w.data<float>() + offset;
    const cuda::Weights weights = keep ? cuda::Weights(data, w.storage()) : cuda::Weights(data);
    const auto packing = weights.packed({key}, kPackedBytes, 0, stream, Packing{&packs});
    CHECK_CUDA(cudaMemcpyAsync(out.raw(), packing->as<float>(), sizeof(float), cudaMemcpyDeviceToDevice, stream));
  }
  float value(const Tensor& w, std::int64_t key = 0, std::int64_t offset = 0, bool keep = true) {
    const Tensor out = Tensor::zeros({1}, {.device = Device::cuda()});
    use(w, out, key, offset, keep);
    return out.item<float>();
  }
};

}  // namespace polyphase::testing
