#include "cpu/matmul.hpp"

#include <Eigen/Core>
#include <algorithm>

#include "cpu/copy.hpp"
#include "cpu/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

template <class T>
void matmul_typed(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Eigen::Index M = a.size(1), K = a.size(2), N = b.size(2);
  const T* a_data = a.data<T>();
  const T* b_data = b.data<T>();
  T* out_data = out.data<T>();
  constexpr Eigen::Index kRows = 64;
  const Eigen::Index blocks = (M + kRows - 1) / kRows;
  parallel_for(out.size(0) * blocks, kElementGrain / (kRows * N * std::max<Eigen::Index>(K, 1)) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t batch = task / blocks;
                   const Eigen::Index row = task % blocks * kRows;
                   const Eigen::Index rows = std::min(kRows, M - row);
                   const Eigen::Map<const Matrix<T>, 0, Strides> left(a_data + batch * a.stride(0) + row * a.stride(1), rows, K,
                                                                      Strides(a.stride(1), a.stride(2)));
                   const Eigen::Map<const Matrix<T>, 0, Strides> right(b_data + batch * b.stride(0), K, N,
                                                                       Strides(b.stride(1), b.stride(2)));
                   Eigen::Map<Matrix<T>>(out_data + (batch * M + row) * N, rows, N).noalias() = left * right;
                 }
               });
}

}  // namespace

void matmul(const Tensor& out, const Tensor& a, const Tensor& b) {
  require<DTypeError>(is_floating_point(out.dtype()), "matmul: expected a floating-point dtype, got ", out.dtype());
  if (out.numel() == 0) return;
  if (out.dtype() == DType::f64) return matmul_typed<double>(out, a, b);
  if (out.dtype() == DType::f32) return matmul_typed<float>(out, a, b);
  const auto widen = [](const Tensor& t) {
    Tensor wide = Tensor::empty(t.shape(), {DType::f32, t.device()});
    copy(wide, t);
    return wide;
  };
  const Tensor sum = Tensor::empty(out.shape(), {DType::f32, out.device()});
  matmul_typed<float>(sum, widen(a), widen(b));
  copy(out, sum);
}

}  // namespace polyphase::cpu
