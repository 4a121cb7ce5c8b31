// cuBLAS is column-major, so out = a*b is computed as out^T = b^T a^T. An operand is copied only if neither of its last two
// strides is 1.

#include "cuda/linear/matmul.hpp"

#include <algorithm>
#include <optional>

#include "cuda/elementwise/copy.hpp"
#include "cuda/linear/blas.hpp"

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
  const auto at = [&](const Tensor& tensor, std::int64_t batch) {
    return static_cast<char*>(tensor.raw()) + batch * tensor.stride(0) * size;
  };
  for (std::int64_t batch = 0; batch < B; batch += kMaxBatch) {
    const std::int64_t count = std::min(kMaxBatch, B - batch);
    CHECK_CUBLAS(cublasGemmStridedBatchedEx_64(
        blas.handle(), right.layout.operation, left.layout.operation, N, M, K, one, at(right.tensor, batch), type,
        right.layout.leading, right.tensor.stride(0), at(left.tensor, batch), type, left.layout.leading, left.tensor.stride(0),
        zero, at(out, batch), type, N, M * N, count, compute_of(out.dtype(), precision), CUBLAS_GEMM_DEFAULT));
  }
}

}  // namespace polyphase::cuda
