// cuBLAS is column-major, so out = a*b is computed as out^T = b^T a^T. An operand is copied only if neither of its last two
// strides is 1. In f32 without tensor cores, cuBLAS leaves most of a GPU idle if out has few tiles and K is long: such a
// product is a batch of products over parts of K (split-K), and a launch that adds them.

#include "cuda/linear/matmul.hpp"

#include <algorithm>
#include <optional>

#include "cuda/elementwise/copy.hpp"
#include "cuda/linear/blas.hpp"
#include "cuda/reduce/reduce.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

/// The transpose of a matrix (rows, columns) for cuBLAS: `operation` on a column-major array with leading dimension `leading`.
struct Layout {
  cublasOperation_t operation;
  std::int64_t leading;
};
std::optional<Layout> layout_of(const Tensor& matrix) {
  const std::int64_t rows = matrix.size(1), columns = matrix.size(2), row = matrix.stride(1), column = matrix.stride(2);
  if ((columns == 1 || column == 1) && (rows == 1 || row >= columns)) return Layout{CUBLAS_OP_N, rows == 1 ? columns : row};
  if ((rows == 1 || row == 1) && (columns == 1 || column >= rows)) return Layout{CUBLAS_OP_T, columns == 1 ? rows : column};
  return std::nullopt;
}

struct Operand {
  Tensor tensor;  // keeps a copy alive while it is used
  Layout layout;
};
Operand operand_of(const Tensor& matrix, cudaStream_t stream) {
  if (const auto layout = layout_of(matrix)) return {matrix, *layout};
  const bool broadcast = matrix.stride(0) == 0 && matrix.size(0) > 1;  // copied once
  const Tensor source = broadcast ? TensorAccess::view(matrix, {1, matrix.size(1), matrix.size(2)},
                                                       {0, matrix.stride(1), matrix.stride(2)}, matrix.offset())
                                  : matrix;
  const Tensor copied = Tensor::empty(source.shape(), {matrix.dtype(), matrix.device()});
  copy(copied, source, stream);
  if (!broadcast) return {copied, *layout_of(copied)};
  const Tensor spread = TensorAccess::view(copied, matrix.shape(), {0, copied.stride(1), copied.stride(2)}, 0);
  return {spread, *layout_of(copied)};
}

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t compute_of(DType dtype, Precision precision) {
  if (dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  if (dtype != DType::f32) return CUBLAS_COMPUTE_32F;
  if (precision == Precision::tf32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return precision == Precision::ieee ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
}

constexpr std::int64_t kMaxBatch = 65535;  // per call: the limit of a grid's second and third sizes

/// The parts of K for one product in f32: 1, or 4 or 8, so that there are up to two tiles for each multiprocessor. Two parts
/// gain nothing, and cuBLAS has kernels of its own for few rows or columns. On an H200 in fp32, 250 x 2048 by 512 columns takes
/// 22 us in 8 parts and 46 in one, 100 x 512 by 512 columns 8 in 4 parts and 17 in one.
std::int64_t parts_of_sum(std::int64_t M, std::int64_t N, std::int64_t K, int multiprocessors) {
  constexpr std::int64_t kTile = 64, kLeastOfPart = 128, kAligned = 4;
  if (std::min(M, N) <= kTile) return 1;
  const std::int64_t tiles = (M + kTile - 1) / kTile * ((N + kTile - 1) / kTile);
  for (const std::int64_t parts : {8, 4})
    if (K % (parts * kAligned) == 0 && K / parts >= kLeastOfPart && tiles * parts <= 2 * std::int64_t{multiprocessors})
      return parts;
  return 1;
}

}  // namespace

void matmul(const Tensor& out, const Tensor& a, const Tensor& b, Precision precision, cudaStream_t stream) {
  require<DTypeError>(is_floating_point(out.dtype()), "matmul: expected a floating-point dtype, got ", out.dtype());
  if (out.numel() == 0) return;
  if (a.numel() == 0) return fill(out, 0, stream);
  const std::int64_t B = out.size(0), M = out.size(1), N = out.size(2), K = a.size(2);
  const Operand left = operand_of(a, stream), right = operand_of(b, stream);
  const BlasScope blas(out.device().index, stream);
  const bool wide = out.dtype() == DType::f64;
  const float one32 = 1, zero32 = 0;
  const double one64 = 1, zero64 = 0;
  const void* const one = wide ? static_cast<const void*>(&one64) : &one32;
  const void* const zero = wide ? static_cast<const void*>(&zero64) : &zero32;
  const cudaDataType type = type_of(out.dtype());
  const auto size = static_cast<std::int64_t>(size_of(out.dtype()));
  // `count` products with sums of `k`; strides in elements, from one product to the next.
  const auto multiply = [&](const void* from_right, std::int64_t right_stride, const void* from_left, std::int64_t left_stride,
                            void* to, std::int64_t k, std::int64_t count) {
    CHECK_CUBLAS(cublasGemmStridedBatchedEx_64(blas.handle(), right.layout.operation, left.layout.operation, N, M, k, one,
                                               from_right, type, right.layout.leading, right_stride, from_left, type,
                                               left.layout.leading, left_stride, zero, to, type, N, M * N, count,
                                               compute_of(out.dtype(), precision), CUBLAS_GEMM_DEFAULT));
  };
  const bool is_split = B == 1 && out.dtype() == DType::f32 && precision != Precision::tf32;
  const std::int64_t parts = is_split ? parts_of_sum(M, N, K, properties(out.device().index).sm_count) : 1;
  if (parts > 1) {
    const Tensor products = Tensor::empty({parts, M, N}, {DType::f32, out.device()});
    const std::int64_t k = K / parts;
    multiply(right.tensor.raw(), k * right.tensor.stride(1), left.tensor.raw(), k * left.tensor.stride(2), products.raw(), k,
             parts);
    return reduce(ReduceOp::sum, out, products, stream);
  }
  const auto at = [&](const Tensor& tensor, std::int64_t batch) {
    return static_cast<char*>(tensor.raw()) + batch * tensor.stride(0) * size;
  };
  for (std::int64_t batch = 0; batch < B; batch += kMaxBatch)
    multiply(at(right.tensor, batch), right.tensor.stride(0), at(left.tensor, batch), left.tensor.stride(0), at(out, batch), K,
             std::min(kMaxBatch, B - batch));
}

}  // namespace polyphase::cuda
