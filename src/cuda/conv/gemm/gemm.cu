// Algorithm::gemm: pieces that fit in the workspace limit, strided batched GEMMs over samples or groups, with col2im or im2col.
//
// In column-major terms, per sample and group, with i running fastest everywhere:
//   forward  columns (i, co*K)  = x (i, ci) * w (co*K, ci)^T        then col2im
//   dgrad    x (i, ci)          = columns (i, co*K) * w (co*K, ci)  after im2col
//   wgrad    w (co*K, ci)      += columns (i, co*K)^T * x (i, ci)   after im2col, sample after sample
//
// A convolution of one tap has y as its columns: its gradients need no im2col and no buffer.
#include "cuda/conv/gemm/gemm.hpp"

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <ostream>
#include <utility>

#include "conv/workspace.hpp"
#include "cuda/conv/element.cuh"
#include "cuda/conv/gemm/column.cuh"
#include "cuda/linear/blas.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda::gemm {
namespace {

template <class T>
inline constexpr cudaDataType kTypeOf = CUDA_R_32F;
template <>
inline constexpr cudaDataType kTypeOf<double> = CUDA_R_64F;
template <>
inline constexpr cudaDataType kTypeOf<__half> = CUDA_R_16F;
template <>
inline constexpr cudaDataType kTypeOf<__nv_bfloat16> = CUDA_R_16BF;

template <class T>
cublasComputeType_t compute_type(Precision precision) {
  if constexpr (std::is_same_v<T, double>) return CUBLAS_COMPUTE_64F;
  if (precision == Precision::ieee) return CUBLAS_COMPUTE_32F_PEDANTIC;
  if constexpr (std::is_same_v<T, float>) {
    if (precision == Precision::tf32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  return CUBLAS_COMPUTE_32F;
}

/// The sizes of a problem that the pieces depend on.
struct Sizes {
  std::int64_t ci, rows;  // per group; rows = C_out/G * K
  std::int64_t halo;      // positions that a piece of outputs needs in addition to its own
  std::size_t word;       // bytes per element of the column buffer
};

bool in_accumulator(ConvDirection direction) { return direction == ConvDirection::forward; }

Sizes sizes_of(const ConvProblem& problem, ConvDirection direction) {
  Sizes sizes{};
  sizes.ci = problem.channels_in_per_group();
  sizes.rows = problem.channels_out_per_group() * problem.K;
  sizes.halo = direction == ConvDirection::forward ? (problem.K - 1) * problem.D / problem.S + 1 : 0;
  sizes.halo = std::min(sizes.halo, std::max<std::int64_t>(problem.L_in - 1, 0));
  const std::size_t element = size_of(problem.dtype);
  sizes.word = in_accumulator(direction) ? std::max<std::size_t>(element, 4) : element;
  return sizes;
}

std::size_t weight_sum_bytes(const ConvProblem& problem, ConvDirection direction) {
  if (direction != ConvDirection::wgrad || size_of(problem.dtype) >= 4) return 0;
  return static_cast<std::size_t>(problem.C_in * problem.channels_out_per_group() * problem.K) * 4;
}

/// Calls work(piece) for pieces that fit in `bytes`: whole samples if possible, else groups, else positions. In forward, pieces
/// of positions end on whole outputs.
template <class Work>
void for_each_piece(const ConvProblem& problem, ConvDirection direction, std::size_t bytes, const Work& work) {
  const Sizes sizes = sizes_of(problem, direction);
  const std::size_t limit = has_own_columns(problem, direction) ? std::numeric_limits<std::int64_t>::max() : bytes;
  const auto words = static_cast<std::int64_t>(limit / sizes.word);
  const std::int64_t positions = problem.L_in;
  const std::int64_t group_words = sizes.rows * positions;
  const std::int64_t fit = std::max<std::int64_t>(1, words / std::max<std::int64_t>(1, group_words));  // (sample, group) pairs
  const std::int64_t groups = std::min(problem.G, fit);
  const std::int64_t samples = groups == problem.G ? std::clamp<std::int64_t>(fit / problem.G, 1, problem.N) : 1;
  const bool is_forward = direction == ConvDirection::forward;
  const std::int64_t room = words / sizes.rows;  // positions of one (sample, group)
  const bool whole = group_words <= words;
  const std::int64_t own = whole ? positions : std::max<std::int64_t>(1, room - sizes.halo);
  const std::int64_t length = is_forward ? problem.L_out : positions;
  const std::int64_t unit = whole ? length : is_forward ? std::max<std::int64_t>(1, (own - 1) * problem.S) : own;
  for (std::int64_t n = 0; n < problem.N; n += samples)
    for (std::int64_t g = 0; g < problem.G; g += groups)
      for (std::int64_t begin = 0; begin < length; begin += unit) {
        const std::int64_t count = std::min(unit, length - begin);
        Piece piece{n, std::min(samples, problem.N - n), g, std::min(groups, problem.G - g), begin, count, begin, count};
        if (is_forward) {
          const auto floor_divide = [](std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); };
          const std::int64_t first = -floor_divide(-(begin + problem.P_l - (problem.K - 1) * problem.D), problem.S);
          const std::int64_t last = floor_divide(begin + count - 1 + problem.P_l, problem.S);
          piece.i_begin = whole ? 0 : std::clamp<std::int64_t>(first, 0, positions);
          piece.i_count = (whole ? positions : std::clamp<std::int64_t>(last + 1, piece.i_begin, positions)) - piece.i_begin;
        }
        work(piece);
      }
}

/// The number whose product with `value` is 1 modulo `modulus`, by the extended Euclidean algorithm. They have no common
/// divisor.
std::int64_t inverse_of(std::int64_t value, std::int64_t modulus) {
  std::int64_t a = modulus, b = value % modulus, of_a = 0, of_b = 1;
  while (b != 0) {
    const std::int64_t whole = a / b;
    a = std::exchange(b, a - whole * b);
    of_a = std::exchange(of_b, of_a - whole * of_b);
  }
  return of_a < 0 ? of_a + modulus : of_a;
}

TapSteps tap_steps(const ConvProblem& problem) {
  const std::int64_t common = std::gcd(problem.S, problem.D), period = problem.S / common, back = problem.D / common;
  return {common, period, back, inverse_of(back, period)};
}

unsigned grid_for(std::int64_t blocks) { return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, 1 << 20)); }
constexpr int kThreads = 256;

/// One strided batched product of `count` matrices; strides in elements.
struct Matrix {
  const void* data;
  cudaDataType type;
  std::int64_t lead, stride;
};
template <class T>
void multiply(cublasHandle_t handle, Precision precision, cublasOperation_t op_a, cublasOperation_t op_b, std::int64_t gemm_m,
              std::int64_t gemm_n, std::int64_t gemm_k, bool add, const Matrix& a, const Matrix& b, const Matrix& c,
              std::int64_t count) {
  const double one64 = 1, beta64 = add ? 1 : 0;
  const float one32 = 1, beta32 = add ? 1 : 0;
  const bool is_double = std::is_same_v<T, double>;
  const void* alpha = is_double ? static_cast<const void*>(&one64) : &one32;
  const void* beta = is_double ? static_cast<const void*>(&beta64) : &beta32;
  check_blas(cublasGemmStridedBatchedEx_64(handle, op_a, op_b, gemm_m, gemm_n, gemm_k, alpha, a.data, a.type, a.lead, a.stride,
                                           b.data, b.type, b.lead, b.stride, beta, const_cast<void*>(c.data), c.type, c.lead,
                                           c.stride, count, compute_type<T>(precision), CUBLAS_GEMM_DEFAULT),
             "cublasGemmStridedBatchedEx");
}

/// Calls product(n, g, samples, groups) so that each call is one batch, over the samples or over the groups, whichever are
/// more.
template <class Product>
void for_each_batch(const Piece& piece, const Product& product) {
  if (piece.n_count >= piece.g_count) {
    for (std::int64_t g = 0; g < piece.g_count; ++g) product(std::int64_t{0}, g, piece.n_count, std::int64_t{1});
  } else {
    for (std::int64_t n = 0; n < piece.n_count; ++n) product(n, std::int64_t{0}, std::int64_t{1}, piece.g_count);
  }
}

template <class T>
struct Arrays {
  const ConvProblem& problem;
  Sizes sizes;
  T *x, *y, *w;
  [[nodiscard]] T* x_at(const Piece& piece, std::int64_t n, std::int64_t g) const {
    return x + ((piece.n_begin + n) * problem.C_in + (piece.g_begin + g) * sizes.ci) * problem.L_in + piece.i_begin;
  }
  [[nodiscard]] std::int64_t w_at(const Piece& piece, std::int64_t g) const {
    return (piece.g_begin + g) * sizes.ci * sizes.rows;
  }
  [[nodiscard]] std::int64_t column_at(const Piece& piece, std::int64_t n, std::int64_t g) const {
    return (n * piece.g_count + g) * sizes.rows * piece.i_count;
  }
  /// Between neighbours of a batch.
  [[nodiscard]] std::int64_t x_stride(std::int64_t samples) const {
    return (samples > 1 ? problem.C_in : sizes.ci) * problem.L_in;
  }
  [[nodiscard]] std::int64_t w_stride(std::int64_t samples) const { return samples > 1 ? 0 : sizes.ci * sizes.rows; }
  [[nodiscard]] std::int64_t column_stride(const Piece& piece, std::int64_t samples) const {
    return sizes.rows * piece.i_count * (samples > 1 ? piece.g_count : 1);
  }
};

/// The columns of y for the gradients: in `buffer`, or y itself, whose one piece is everything.
template <class T>
const T* columns_of(const ConvProblem& problem, const Piece& piece, const T* y, T* buffer, const Sizes& sizes,
                    cudaStream_t stream) {
  if (has_own_columns(problem, ConvDirection::dgrad)) return y;
  const std::int64_t rows = piece.n_count * piece.g_count * sizes.rows;
  im2col_kernel<T>
      <<<grid_for(rows * ((piece.i_count + kThreads - 1) / kThreads)), kThreads, 0, stream>>>(problem, piece, y, buffer);
  check_launch("conv gemm: im2col");
  return buffer;
}

template <class T>
void forward_as(const Arrays<T>& arrays, const T* bias, const Epilogue& epilogue, Precision precision, int device,
                cudaStream_t stream, std::size_t bytes) {
  using A = typename AccumulatorOf<T>::type;
  const ConvProblem& problem = arrays.problem;
  const Sizes& sizes = arrays.sizes;
  const Buffer buffer(bytes, device);
  const TapSteps steps = tap_steps(problem);
  for_each_piece(problem, ConvDirection::forward, bytes, [&](const Piece& piece) {
    if (piece.i_count > 0) {
      for_each_batch(piece, [&](std::int64_t n, std::int64_t g, std::int64_t samples, std::int64_t groups) {
        multiply<T>(
            blas_handle(device, stream), precision, CUBLAS_OP_N, CUBLAS_OP_T, piece.i_count, sizes.rows, sizes.ci, false,
            {arrays.x_at(piece, n, g), kTypeOf<T>, problem.L_in, arrays.x_stride(samples)},
            {arrays.w + arrays.w_at(piece, g), kTypeOf<T>, sizes.rows, arrays.w_stride(samples)},
            {buffer.as<A>() + arrays.column_at(piece, n, g), kTypeOf<A>, piece.i_count, arrays.column_stride(piece, samples)},
            samples * groups);
      });
    }
    const std::int64_t rows = piece.n_count * piece.g_count * problem.channels_out_per_group();
    col2im_kernel<T, A><<<grid_for(rows * ((piece.t_count + kThreads - 1) / kThreads)), kThreads, 0, stream>>>(
        problem, piece, steps, epilogue, buffer.as<A>(), bias, arrays.y);
    check_launch("conv gemm: col2im");
  });
}

template <class T>
void dgrad_as(const Arrays<T>& arrays, const T* bias, Precision precision, int device, cudaStream_t stream, std::size_t bytes) {
  const ConvProblem& problem = arrays.problem;
  const Sizes& sizes = arrays.sizes;
  const Buffer buffer(bytes, device);
  if (bias != nullptr) {
    const std::int64_t rows = problem.N * problem.C_in, span = kThreads * kVectorOf<T>;
    const std::int64_t spans = (problem.L_in + kVectorOf<T> - 1 + span - 1) / span;
    fill_bias_kernel<T><<<grid_for(rows * spans), kThreads, 0, stream>>>(rows, problem.L_in, problem.C_in, bias, arrays.x);
    check_launch("conv gemm: fill bias");
  }
  for_each_piece(problem, ConvDirection::dgrad, bytes, [&](const Piece& piece) {
    const T* columns = columns_of<T>(problem, piece, arrays.y, buffer.as<T>(), sizes, stream);
    for_each_batch(piece, [&](std::int64_t n, std::int64_t g, std::int64_t samples, std::int64_t groups) {
      multiply<T>(blas_handle(device, stream), precision, CUBLAS_OP_N, CUBLAS_OP_N, piece.i_count, sizes.ci, sizes.rows,
                  bias != nullptr,
                  {columns + arrays.column_at(piece, n, g), kTypeOf<T>, piece.i_count, arrays.column_stride(piece, samples)},
                  {arrays.w + arrays.w_at(piece, g), kTypeOf<T>, sizes.rows, arrays.w_stride(samples)},
                  {arrays.x_at(piece, n, g), kTypeOf<T>, problem.L_in, arrays.x_stride(samples)}, samples * groups);
    });
  });
}

template <class T>
void wgrad_as(const Arrays<T>& arrays, Precision precision, int device, cudaStream_t stream, std::size_t bytes) {
  using A = typename AccumulatorOf<T>::type;
  const ConvProblem& problem = arrays.problem;
  const Sizes& sizes = arrays.sizes;
  const std::int64_t weights = problem.G * sizes.ci * sizes.rows;
  std::unique_ptr<Buffer> rounded;
  A* sums;
  if constexpr (std::is_same_v<T, A>) {
    sums = arrays.w;
  } else {
    rounded = std::make_unique<Buffer>(static_cast<std::size_t>(weights) * sizeof(A), device);
    sums = rounded->template as<A>();
  }
  const Buffer buffer(bytes, device);
  CHECK_CUDA(cudaMemsetAsync(sums, 0, static_cast<std::size_t>(weights) * sizeof(A), stream));
  for_each_piece(problem, ConvDirection::wgrad, bytes, [&](const Piece& piece) {
    const T* columns = columns_of<T>(problem, piece, arrays.y, buffer.as<T>(), sizes, stream);
    for (std::int64_t n = 0; n < piece.n_count; ++n) {
      multiply<T>(blas_handle(device, stream), precision, CUBLAS_OP_T, CUBLAS_OP_N, sizes.rows, sizes.ci, piece.i_count, true,
                  {columns + arrays.column_at(piece, n, 0), kTypeOf<T>, piece.i_count, arrays.column_stride(piece, 1)},
                  {arrays.x_at(piece, n, 0), kTypeOf<T>, problem.L_in, arrays.x_stride(1)},
                  {sums + arrays.w_at(piece, 0), kTypeOf<A>, sizes.rows, arrays.w_stride(1)}, piece.g_count);
    }
  });
  if constexpr (!std::is_same_v<T, A>) {
    round_kernel<T, A><<<grid_for((weights + kThreads - 1) / kThreads), kThreads, 0, stream>>>(weights, sums, arrays.w);
    check_launch("conv gemm: round");
  }
}

/// Bytes of the column buffer: what the whole problem needs, at most the limit.
std::size_t workspace_bytes(const ConvProblem& problem, ConvDirection direction) {
  if (has_own_columns(problem, direction)) return 0;
  const Sizes sizes = sizes_of(problem, direction);
  const double all =
      static_cast<double>(problem.N * problem.G) * static_cast<double>(sizes.rows) * static_cast<double>(problem.L_in);
  const std::size_t limit = conv_workspace_limit() - weight_sum_bytes(problem, direction);
  const double needed = all * static_cast<double>(sizes.word);
  return needed < static_cast<double>(limit) ? static_cast<std::size_t>(needed) : limit;
}

template <class T>
T* mutable_cast(const void* data) {
  return static_cast<T*>(const_cast<void*>(data));
}

}  // namespace

std::optional<std::string> can_implement(const ConvProblem& problem, ConvDirection direction) {
  const Sizes sizes = sizes_of(problem, direction);
  const std::size_t least =
      static_cast<std::size_t>(sizes.rows * (sizes.halo + 1)) * sizes.word + weight_sum_bytes(problem, direction);
  const std::size_t limit = conv_workspace_limit();
  if (least <= limit || problem.L_in == 0) return std::nullopt;
  return concat("its smallest piece needs ", least, " bytes of workspace, the limit is ", limit);
}

void gather(const ConvProblem& problem, ConvDirection direction, const void* source, const void* w, const void* bias, void* out,
            const Epilogue& epilogue, Precision precision, int device, cudaStream_t stream) {
  const bool is_forward = direction == ConvDirection::forward;
  if (problem.N == 0 || (is_forward ? problem.L_out : problem.L_in) == 0) return;
  with_element(problem, direction, [&]<class T>(T*) {
    const std::size_t bytes = workspace_bytes(problem, direction);
    const Arrays<T> arrays{problem, sizes_of(problem, direction), mutable_cast<T>(is_forward ? source : out),
                           mutable_cast<T>(is_forward ? out : source), mutable_cast<T>(w)};
    if (is_forward)
      forward_as<T>(arrays, static_cast<const T*>(bias), epilogue, precision, device, stream, bytes);
    else
      dgrad_as<T>(arrays, static_cast<const T*>(bias), precision, device, stream, bytes);
  });
}

void wgrad(const ConvProblem& problem, const void* x, const void* y, void* w, Precision precision, int device,
           cudaStream_t stream) {
  const auto weights = static_cast<std::size_t>(problem.C_in * problem.channels_out_per_group() * problem.K);
  if (problem.N == 0 || problem.L_in == 0 || problem.L_out == 0) {
    CHECK_CUDA(cudaMemsetAsync(w, 0, weights * size_of(problem.dtype), stream));
    return;
  }
  with_element(problem, ConvDirection::wgrad, [&]<class T>(T*) {
    wgrad_as<T>({problem, sizes_of(problem, ConvDirection::wgrad), mutable_cast<T>(x), mutable_cast<T>(y), static_cast<T*>(w)},
                precision, device, stream, workspace_bytes(problem, ConvDirection::wgrad));
  });
}

}  // namespace polyphase::cuda::gemm
