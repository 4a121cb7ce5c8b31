#include "cuda/conv/tensor_core/wgrad/joined/joined.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda::tensor_core {
namespace {

/// Blocks (piece of a row, channel). Writes are whole rows; reads are runs of L elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    join_kernel(T* __restrict__ to, const T* __restrict__ from, std::int64_t N, std::int64_t C, std::int64_t L,
                std::int64_t length, Divider by_pitch, bool narrow) {
  for (std::int64_t c = blockIdx.y; c < C; c += gridDim.y) {
    for (std::int64_t position = thread_position(); position < length; position += thread_count()) {
      std::int64_t i = position;
      const std::int64_t n = by_pitch.split(i, narrow);
      to[c * length + position] = n < N && i < L ? from[(n * C + c) * L + i] : T(0);
    }
  }
}

}  // namespace

std::optional<JoinedSamples> join_samples(const ConvProblem& problem) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31, kWhole = 8;
  if (problem.N < 2) return std::nullopt;
  // Sample n of y begins at S*n*pitch. Its taps reach from -P_l to `end`: neither may reach another sample's numbers.
  const std::int64_t end = problem.S * (problem.L_in - 1) + problem.D * (problem.K - 1) - problem.P_l + 1;
  const std::int64_t of_y = std::max(problem.L_out + problem.P_l, end);
  const std::int64_t pitch = std::max(problem.L_in, (of_y + problem.S - 1) / problem.S);
  const std::int64_t length = (problem.N * pitch + kWhole - 1) / kWhole * kWhole;
  if (length * problem.S >= kMost) return std::nullopt;
  JoinedSamples joined{problem, pitch};
  joined.problem.N = 1, joined.problem.L_in = length, joined.problem.L_out = length * problem.S;
  // L_out = (L_in - 1)*S - P_l - P_r + D*(K - 1) + OP + 1
  const std::int64_t cropped = problem.D * (problem.K - 1) + 1 - problem.S - problem.P_l;
  joined.problem.P_r = std::max<std::int64_t>(cropped, 0), joined.problem.OP = std::max<std::int64_t>(-cropped, 0);
  return joined;
}

std::int64_t joined_bytes(const JoinedSamples& joined) {
  const ConvProblem& p = joined.problem;
  return (p.C_in * p.L_in + p.C_out * p.L_out) * static_cast<std::int64_t>(size_of(p.dtype));
}

double join_seconds(const JoinedSamples& joined) {
  constexpr double kLaunch = 3e-6, kBytesPerSecond = 0.6e12;
  return 2 * kLaunch + 2 * static_cast<double>(joined_bytes(joined)) / kBytesPerSecond;
}

void copy_joined(void* to, const void* from, std::size_t bytes, std::int64_t N, std::int64_t C, std::int64_t L,
                 std::int64_t pitch, std::int64_t length, CUstream_st* stream) {
  constexpr std::int64_t kMostChannels = 65535;
  const dim3 grid(grid_for(length), static_cast<unsigned>(std::min(C, kMostChannels)));
  dispatch_size(bytes, [&]<class T>(T) {
    join_kernel<T><<<grid, kThreads, 0, stream>>>(static_cast<T*>(to), static_cast<const T*>(from), N, C, L, length,
                                                  Divider(pitch), length < std::int64_t{1} << 31);
  });
  check_launch("conv tensor_core: join samples");
}

}  // namespace polyphase::cuda::tensor_core
