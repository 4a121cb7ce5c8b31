// out = epilogue(out), memory bound: an f32 element costs 8 bytes, and 4 for each of what is added to it, gives its derivative
// or is kept. Vectors of 16 bytes from an aligned address on; only snake has to know channels, so all else is one long row.

#include "cuda/conv/finish.hpp"

#include <algorithm>

#include "cuda/elements.cuh"
#include "cuda/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kFinishThreads = 256;
constexpr int kFinishVectors = 4;  // of a thread

struct FinishLaunch {
  Epilogue epilogue;
  std::int64_t rows, length, channels, pieces;  // pieces: of a row
};

template <class T>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kernel(const __grid_constant__ FinishLaunch launch, T* __restrict__ out) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kPiece = kFinishThreads * kFinishVectors * kVector;
  for (std::int64_t block = blockIdx.x; block < launch.rows * launch.pieces; block += gridDim.x) {
    const std::int64_t row = block / launch.pieces, piece = block - row * launch.pieces;
    T* const to = out + row * launch.length;
    const auto ahead = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % 16 / sizeof(T));  // elements past an address
    finish_stored<MathOf<T>>(launch.epilogue, to, launch.length, piece * kPiece - ahead, kPiece, row % launch.channels,
                             static_cast<int>(threadIdx.x), kFinishThreads);
  }
}

}  // namespace

void finish(const Epilogue& epilogue, DType dtype, std::int64_t N, std::int64_t C, std::int64_t L, void* out,
            cudaStream_t stream) {
  if (N * C * L == 0) return;
  const bool by_channels = epilogue.activation == Activation::snake;
  FinishLaunch launch{epilogue, by_channels ? N * C : 1, by_channels ? L : N * C * L, C, 0};
  dispatch_element(dtype, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      constexpr std::int64_t kVector = 16 / sizeof(T), kPiece = kFinishThreads * kFinishVectors * kVector;
      launch.pieces = (launch.length + kVector - 1 + kPiece - 1) / kPiece;
      constexpr std::int64_t kMostBlocks = 1 << 20;
      const auto blocks = static_cast<unsigned>(std::min(launch.rows * launch.pieces, kMostBlocks));
      finish_kernel<T><<<blocks, kFinishThreads, 0, stream>>>(launch, static_cast<T*>(out));
    }
  });
  check_launch("conv: finish");
}

}  // namespace polyphase::cuda
