// The real transform of n numbers as a complex one of m = n/2, any even n; a block transforms a row in shared memory.
//
// Stockham passes (Govindaraju et al., "High performance discrete Fourier transforms on graphics processors", SC 2008): a pass
// of radix R after passes that make up N_s reads x[j + s*m/R], s < R, and writes y[j/N_s*N_s*R + j%N_s + r*N_s], r < R, j <
// m/R. A thread computes one output as a plain sum of R products with roots from one table of n: R = 4 where it divides, then
// 2, then what primes are left. Roots are computed in f64 and rounded once; error grows with the number of passes. Bytes: rows
// in and out once. Operations: about 8*m*sum(R) a row, for n = 2048 below the time of the bytes. Shared memory 4*m elements;
// rows that do not fit work in global memory instead.

#include "cuda/linear/fft.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kMaxPasses = 32;  // m < 2^31

struct FftPass {
  std::uint32_t radix, before;     // R, N_s
  std::uint32_t twiddle;           // m / (N_s R): the step in the m-th roots for j % N_s
  FastDivide by_before, by_width;  // N_s, m/R
};
struct FftShape {
  std::uint32_t m;
  int passes;
  std::int64_t rows;
  FftPass pass[kMaxPasses];
};

template <class T>
struct Complex {
  T re, im;
};
template <class T>
__device__ __forceinline__ Complex<T> product(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// exp(-2 pi i k/m) is roots[2k]: the table has the n-th roots.
template <class T>
__device__ void run_pass(const FftPass& pass, std::uint32_t m, const Complex<T>* __restrict__ roots, const Complex<T>* x,
                         Complex<T>* y) {
  const std::uint32_t width = m / pass.radix;
  for (std::uint32_t e = threadIdx.x; e < m; e += blockDim.x) {
    const std::uint32_t r = pass.by_width.divide(e), j = e - r * width;
    const std::uint32_t block = pass.by_before.divide(j), k = j - block * pass.before;
    std::uint32_t step = k * pass.twiddle + r * width;  // below 2m
    if (step >= m) step -= m;
    Complex<T> sum = x[j];
    std::uint32_t power = 0;
    for (std::uint32_t s = 1; s < pass.radix; ++s) {
      power += step;
      if (power >= m) power -= m;
      const Complex<T> term = product(x[j + s * width], roots[2 * static_cast<std::int64_t>(power)]);
      sum.re += term.re, sum.im += term.im;
    }
    y[block * pass.before * pass.radix + k + r * pass.before] = sum;
  }
}

// Row by row: load into x, passes between x and y, store. kAdjoint: conj(FFT(conj)) of the Hermitian spectrum's fold.
template <class T, bool kAdjoint>
__global__ void __launch_bounds__(kThreads) fft_kernel(T* out, const T* __restrict__ in, const Complex<T>* __restrict__ roots,
                                                       Complex<T>* global, const __grid_constant__ FftShape shape) {
  extern __shared__ double memory[];  // (2, m) complex numbers
  const std::uint32_t m = shape.m;
  const std::int64_t n = 2 * static_cast<std::int64_t>(m), bins = static_cast<std::int64_t>(m) + 1;
  Complex<T>* x =
      global == nullptr ? reinterpret_cast<Complex<T>*>(memory) : global + blockIdx.x * 2 * static_cast<std::int64_t>(m);
  Complex<T>* y = x + m;
  for (std::int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* from = in + row * (kAdjoint ? 2 * bins : n);
    T* to = out + row * (kAdjoint ? n : 2 * bins);
    for (std::uint32_t k = threadIdx.x; k < m; k += blockDim.x) {
      if constexpr (!kAdjoint) {
        x[k] = {from[2 * static_cast<std::int64_t>(k)], from[2 * static_cast<std::int64_t>(k) + 1]};
      } else {
        // H_k + conj(H_{m-k}) + i w^k (H_k - conj(H_{m-k})), w = exp(2 pi i/n), where H is half of the gradient inside and its
        // real part at both ends; conjugated.
        const auto bin = [&](std::uint32_t f) -> Complex<T> {
          const T re = from[2 * static_cast<std::int64_t>(f)], im = from[2 * static_cast<std::int64_t>(f) + 1];
          return f == 0 || f == m ? Complex<T>{re, T(0)} : Complex<T>{re / 2, im / 2};
        };
        const Complex<T> a = bin(k), b = bin(m - k);
        const Complex<T> root = roots[k];  // conj(w^k)
        const Complex<T> turned = product(Complex<T>{a.re - b.re, a.im + b.im}, Complex<T>{root.re, -root.im});
        x[k] = {a.re + b.re - turned.im, -(a.im - b.im + turned.re)};
      }
    }
    __syncthreads();
    for (int p = 0; p < shape.passes; ++p) {
      run_pass(shape.pass[p], m, roots, x, y);
      __syncthreads();
      Complex<T>* const other = x;
      x = y, y = other;
    }
    if constexpr (kAdjoint) {
      for (std::uint32_t k = threadIdx.x; k < m; k += blockDim.x) {
        to[2 * static_cast<std::int64_t>(k)] = x[k].re;
        to[2 * static_cast<std::int64_t>(k) + 1] = -x[k].im;
      }
    } else {
      for (std::uint32_t k = threadIdx.x; k <= m; k += blockDim.x) {
        // X_k = (Z_k + conj(Z_{m-k}))/2 - i/2 W^k (Z_k - conj(Z_{m-k})), W = exp(-2 pi i/n), Z_m = Z_0
        const Complex<T> a = x[k == m ? 0 : k], b = x[k == 0 ? 0 : m - k];
        const Complex<T> turned = product(Complex<T>{a.re - b.re, a.im + b.im}, roots[k]);
        to[2 * static_cast<std::int64_t>(k)] = (a.re + b.re + turned.im) / 2;
        to[2 * static_cast<std::int64_t>(k) + 1] = (a.im - b.im - turned.re) / 2;
      }
    }
    __syncthreads();  // x and y are free again
  }
}

FftShape make_shape(std::int64_t n, std::int64_t rows) {
  FftShape shape{};
  shape.m = static_cast<std::uint32_t>(n / 2);
  shape.rows = rows;
  std::uint32_t left = shape.m, before = 1;
  const auto add = [&](std::uint32_t radix) {
    shape.pass[shape.passes++] = {radix, before, shape.m / (before * radix), FastDivide(before), FastDivide(shape.m / radix)};
    before *= radix;
    left /= radix;
  };
  while (left % 4 == 0) add(4);
  for (std::uint32_t radix = 2; left > 1; ++radix) {
    if (std::uint64_t{radix} * radix > left) radix = left;  // a prime
    while (left % radix == 0) add(radix);
  }
  return shape;
}

/// exp(-2 pi i k/n), k < n, on a device. Made once per length and kept: a program uses a handful.
template <class T>
const Complex<T>* roots_for(std::int64_t n, int device, cudaStream_t stream) {
  static std::mutex mutex;
  static auto* const tables =
      new std::map<std::pair<int, std::int64_t>, Tensor>;  // never destroyed: the driver may be gone by then
  const std::lock_guard lock(mutex);
  Tensor& table = (*tables)[{device, n}];
  if (!table.defined()) {
    refuse_capture("rfft: the first transform of a length");
    std::vector<T> values(static_cast<std::size_t>(2 * n));
    for (std::int64_t k = 0; k < n; ++k) {
      const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
      values[static_cast<std::size_t>(2 * k)] = static_cast<T>(std::cos(angle));
      values[static_cast<std::size_t>(2 * k + 1)] = static_cast<T>(std::sin(angle));
    }
    const Tensor fresh = Tensor::empty({n, 2}, {dtype_of<T>, Device::cuda(device)});
    CHECK_CUDA(cudaMemcpyAsync(fresh.raw(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
    wait_for(stream);  // other streams may use it from now on
    table = fresh;
  }
  return static_cast<const Complex<T>*>(table.raw());
}

template <class T, bool kAdjoint>
void transform(const Tensor& out, const Tensor& in, std::int64_t n, std::int64_t rows, cudaStream_t stream) {
  require<ShapeError>(n < std::int64_t{1} << 31, "rfft: expected n < 2^31, got ", n);
  const int device = out.device().index;
  const FftShape shape = make_shape(n, rows);
  const Complex<T>* roots = roots_for<T>(n, device, stream);
  const std::size_t row_bytes = 2 * static_cast<std::size_t>(shape.m) * sizeof(Complex<T>);
  const bool fits = row_bytes <= static_cast<std::size_t>(properties(device).shared_bytes_per_block);
  const unsigned grid = fits ? grid_for(rows, 1) : grid_for(std::min<std::int64_t>(rows, properties(device).sm_count), 1);
  const Buffer global(fits ? 0 : grid * row_bytes, device);
  const int threads = std::clamp((static_cast<int>(std::min<std::uint32_t>(shape.m, kThreads)) + 31) / 32 * 32, 32, kThreads);
  auto* const kernel = fft_kernel<T, kAdjoint>;
  if (fits) allow_shared_memory(kernel, static_cast<std::int64_t>(row_bytes));
  kernel<<<grid, threads, fits ? row_bytes : 0, stream>>>(static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()), roots,
                                                          fits ? nullptr : global.as<Complex<T>>(), shape);
  check_launch(kAdjoint ? "rfft_adjoint" : "rfft");
}

void require_real(const char* operation, const Tensor& tensor) {
  require<DTypeError>(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64, operation, ": expected f32 or f64, got ",
                      tensor.dtype());
}

}  // namespace

void rfft(const Tensor& out, const Tensor& in, cudaStream_t stream) {
  require_real("rfft", in);
  if (in.numel() == 0) return;
  const std::int64_t n = in.size(-1), rows = in.numel() / n;
  in.dtype() == DType::f32 ? transform<float, false>(out, in, n, rows, stream)
                           : transform<double, false>(out, in, n, rows, stream);
}

void rfft_adjoint(const Tensor& out, const Tensor& in, cudaStream_t stream) {
  require_real("rfft_adjoint", out);
  if (out.numel() == 0) return;
  const std::int64_t n = out.size(-1), rows = out.numel() / n;
  out.dtype() == DType::f32 ? transform<float, true>(out, in, n, rows, stream)
                            : transform<double, true>(out, in, n, rows, stream);
}

}  // namespace polyphase::cuda
