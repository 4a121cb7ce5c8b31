// out = epilogue(out). Memory bound: an f32 element costs 8 bytes, plus 4 for each aux operand that is read or kept. Vectors of
// 16 bytes from an aligned address on. Only snake needs channels; everything else treats the tensor as one long row.

#include "cuda/conv/epilogue/finish.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kFinishThreads = 256;  // with a vector each: the loads of several would not overlap

struct FinishLaunch {
  Epilogue epilogue;
  std::int64_t rows, length, channels, pieces;  // pieces per row
};

template <class T, bool kSnakeAlone>
__global__ void __launch_bounds__(kFinishThreads, kSnakeAlone ? 4 : 0)
    finish_kernel(const __grid_constant__ FinishLaunch launch, T* __restrict__ out) {
  using A = MathOf<T>;
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kPiece = kFinishThreads * kVector;
  for (std::int64_t block = blockIdx.x; block < launch.rows * launch.pieces; block += gridDim.x) {
    const std::int64_t row = block / launch.pieces, piece = block - row * launch.pieces;
    T* const to = out + row * launch.length;
    const auto ahead =
        static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % 16 / sizeof(T));  // elements past an aligned address
    const std::int64_t begin = piece * kPiece - ahead, channel = row % launch.channels;
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kSnakeAlone)
      activate_stored_snake<A>(launch.epilogue, to, launch.length, begin, kPiece, channel, thread, kFinishThreads);
    else
      finish_stored<A>(launch.epilogue, to, launch.length, begin, kPiece, channel, thread, kFinishThreads);
  }
}

/// The same for sums that were stored where the argument is kept: out = epilogue(kept).
template <class T>
__global__ void __launch_bounds__(kFinishThreads)
    finish_kept_kernel(const __grid_constant__ FinishLaunch launch, T* __restrict__ out) {
  using A = MathOf<T>;
  constexpr int kVector = 16 / static_cast<int>(sizeof(T)), kPiece = kFinishThreads * kVector;
  struct alignas(16) Pack {
    T at[kVector];
  };
  const Epilogue& epilogue = launch.epilogue;
  const bool alike = (epilogue.residual | epilogue.before | epilogue.derivative) % 16 == 0;
  for (std::int64_t block = blockIdx.x; block < launch.rows * launch.pieces; block += gridDim.x) {
    const std::int64_t row = block / launch.pieces, piece = block - row * launch.pieces, channel = row % launch.channels;
    T* const begin = out + row * launch.length;
    const auto ahead = static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) % 16 / sizeof(T));
    const std::int64_t at = piece * kPiece - ahead + static_cast<int>(threadIdx.x) * kVector;
    T* const to = begin + at;
    if (alike && at >= 0 && at + kVector <= launch.length) {
      Pack pack = *reinterpret_cast<const Pack*>(Epilogue::aux(to, epilogue.before));
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        pack.at[i] = epilogue.finished<T>(static_cast<A>(pack.at[i]), channel, epilogue.others<A>(to + i));
      *reinterpret_cast<Pack*>(to) = pack;
      continue;
    }
#pragma unroll 1
    for (int i = 0; i < kVector; ++i)
      if (at + i >= 0 && at + i < launch.length)
        to[i] =
            epilogue.finished<T>(static_cast<A>(*Epilogue::aux(to + i, epilogue.before)), channel, epilogue.others<A>(to + i));
  }
}

}  // namespace

void finish(const Epilogue& epilogue, DType dtype, std::int64_t N, std::int64_t C, std::int64_t L, void* out,
            cudaStream_t stream, bool is_kept) {
  if (N * C * L == 0) return;
  const bool by_channels = epilogue.activation == Activation::snake;
  FinishLaunch launch{epilogue, by_channels ? N * C : 1, by_channels ? L : N * C * L, C, 0};
  dispatch_element(dtype, [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) {
      constexpr std::int64_t kVector = 16 / sizeof(T), kPiece = kFinishThreads * kVector;
      launch.pieces = (launch.length + kVector - 1 + kPiece - 1) / kPiece;
      constexpr std::int64_t kMostBlocks = 1 << 20;
      const auto blocks = static_cast<unsigned>(std::min(launch.rows * launch.pieces, kMostBlocks));
      auto* const kernel = is_kept                     ? finish_kept_kernel<T>
                           : epilogue.is_snake_alone() ? finish_kernel<T, true>
                                                       : finish_kernel<T, false>;
      kernel<<<blocks, kFinishThreads, 0, stream>>>(launch, static_cast<T*>(out));
    }
  });
  check_launch("conv: finish");
}

}  // namespace polyphase::cuda
