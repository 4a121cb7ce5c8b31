// The real transform of n numbers as a complex one of m = n/2, for any even n; a block transforms a row in shared memory.
//
// Stockham passes (Govindaraju et al., "High performance discrete Fourier transforms on graphics processors", SC 2008): after
// passes with product N_s, a pass of radix R reads x[j + s*m/R], s < R, and writes y[j/N_s*N_s*R + j%N_s + r*N_s], r < R, j <
// m/R. A thread computes one output as a sum of R products, in short runs, with roots from one table. R = 4 as long as it
// divides, then 2, then the remaining primes. For a prime beyond kLargestRadix the passes are those of an equivalent
// convolution (tensor/fourier.hpp), f32 rows in f64. Roots are computed in f64 and rounded once; the error grows with the
// number of passes. Bytes: rows in and out once. Operations: about 8*m*sum(R) per row; for n = 2048 they take less time than
// the bytes. Shared memory: 4 elements per point; rows that do not fit use global memory instead.

#include "cuda/linear/fft.hpp"

#include <complex>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/memory/allocator.hpp"
#include "cuda/runtime/graph.hpp"
#include "cuda/runtime/runtime.hpp"
#include "tensor/fourier.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kMaxPasses = 32;  // at most 2^31 points
constexpr std::uint32_t kRun =
    16;  // products that are summed together, so that rounding does not grow with the square root of the radix

struct FftPass {
  std::uint32_t radix, before;     // R, N_s
  std::uint32_t twiddle;           // points / (N_s R): the step in their roots for j % N_s
  FastDivide by_before, by_width;  // N_s, points/R
};
struct FftShape {
  std::uint32_t m, points;  // of the transform; of the passes (m, or that of the convolution)
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

/// On the device, made once per length.
template <class A>
struct FftTables {
  const Complex<A>* split;     // (n): exp(-2 pi i k/n)
  const Complex<A>* roots;     // exp(-2 pi i k/points) is roots[k * stride]
  std::uint32_t stride;        // 2 if the roots are those of n
  const Complex<A>* chirp;     // (m) of a convolution, else null
  const Complex<A>* spectrum;  // (points) of a convolution, else null
};

template <class A>
__device__ void run_pass(const FftPass& pass, std::uint32_t points, const FftTables<A>& tables, const Complex<A>* x,
                         Complex<A>* y) {
  const std::uint32_t width = points / pass.radix;
  for (std::uint32_t e = threadIdx.x; e < points; e += blockDim.x) {
    const std::uint32_t r = pass.by_width.divide(e), j = e - r * width;
    const std::uint32_t block = pass.by_before.divide(j), k = j - block * pass.before;
    std::uint32_t step = k * pass.twiddle + r * width;  // below 2*points
    if (step >= points) step -= points;
    Complex<A> sum = x[j], run{};
    std::uint32_t power = 0;
    for (std::uint32_t s = 1; s < pass.radix; ++s) {
      power += step;
      if (power >= points) power -= points;
      const Complex<A> term = product(x[j + s * width], tables.roots[static_cast<std::int64_t>(power) * tables.stride]);
      run.re += term.re, run.im += term.im;
      if (s % kRun == 0) sum.re += run.re, sum.im += run.im, run = {};
    }
    y[block * pass.before * pass.radix + k + r * pass.before] = {sum.re + run.re, sum.im + run.im};
  }
}

/// Transforms x, which all threads have written. The result is in x again; the areas are exchanged if necessary.
template <class A>
__device__ void run_passes(const FftShape& shape, const FftTables<A>& tables, Complex<A>*& x, Complex<A>*& y) {
  __syncthreads();
  for (int p = 0; p < shape.passes; ++p) {
    run_pass(shape.pass[p], shape.points, tables, x, y);
    __syncthreads();
    Complex<A>* const other = x;
    x = y, y = other;
  }
}

/// The same as a convolution with the chirp; x[k] belongs to thread k % blockDim before and after.
template <class A>
__device__ void convolve(const FftShape& shape, const FftTables<A>& tables, Complex<A>*& x, Complex<A>*& y) {
  for (std::uint32_t k = threadIdx.x; k < shape.points; k += blockDim.x)
    x[k] = k < shape.m ? product(x[k], tables.chirp[k]) : Complex<A>{};
  run_passes(shape, tables, x, y);
  for (std::uint32_t k = threadIdx.x; k < shape.points; k += blockDim.x) {
    const Complex<A> bin = product(x[k], tables.spectrum[k]);
    x[k] = {bin.re, -bin.im};  // the inverse is the transform between two conjugations
  }
  run_passes(shape, tables, x, y);
  for (std::uint32_t k = threadIdx.x; k < shape.m; k += blockDim.x)
    x[k] = product(Complex<A>{x[k].re, -x[k].im}, tables.chirp[k]);
  __syncthreads();
}

// Row by row: load into x, passes between x and y, store. kAdjoint: conj(FFT(conj)) of the fold of the Hermitian spectrum.
template <class T, class A, bool kAdjoint>
__global__ void __launch_bounds__(kThreads)
    fft_kernel(T* out, const T* __restrict__ in, Complex<A>* global, const __grid_constant__ FftTables<A> tables,
               const __grid_constant__ FftShape shape) {
  extern __shared__ double memory[];  // (2, points) complex numbers
  const std::uint32_t m = shape.m;
  const std::int64_t n = 2 * static_cast<std::int64_t>(m), bins = static_cast<std::int64_t>(m) + 1;
  Complex<A>* x = global == nullptr ? reinterpret_cast<Complex<A>*>(memory)
                                    : global + blockIdx.x * 2 * static_cast<std::int64_t>(shape.points);
  Complex<A>* y = x + shape.points;
  for (std::int64_t row = blockIdx.x; row < shape.rows; row += gridDim.x) {
    const T* from = in + row * (kAdjoint ? 2 * bins : n);
    T* to = out + row * (kAdjoint ? n : 2 * bins);
    for (std::uint32_t k = threadIdx.x; k < m; k += blockDim.x) {
      if constexpr (!kAdjoint) {
        x[k] = {static_cast<A>(from[2 * static_cast<std::int64_t>(k)]),
                static_cast<A>(from[2 * static_cast<std::int64_t>(k) + 1])};
      } else {
        // H_k + conj(H_{m-k}) + i w^k (H_k - conj(H_{m-k})), w = exp(2 pi i/n), where H is half of the gradient inside and its
        // real part at both ends; conjugated.
        const auto bin = [&](std::uint32_t f) -> Complex<A> {
          const A re = from[2 * static_cast<std::int64_t>(f)], im = from[2 * static_cast<std::int64_t>(f) + 1];
          return f == 0 || f == m ? Complex<A>{re, A(0)} : Complex<A>{re / 2, im / 2};
        };
        const Complex<A> a = bin(k), b = bin(m - k);
        const Complex<A> root = tables.split[k];  // conj(w^k)
        const Complex<A> turned = product(Complex<A>{a.re - b.re, a.im + b.im}, Complex<A>{root.re, -root.im});
        x[k] = {a.re + b.re - turned.im, -(a.im - b.im + turned.re)};
      }
    }
    if (tables.chirp == nullptr) {
      run_passes(shape, tables, x, y);
    } else {
      convolve(shape, tables, x, y);
    }
    if constexpr (kAdjoint) {
      for (std::uint32_t k = threadIdx.x; k < m; k += blockDim.x) {
        to[2 * static_cast<std::int64_t>(k)] = static_cast<T>(x[k].re);
        to[2 * static_cast<std::int64_t>(k) + 1] = static_cast<T>(-x[k].im);
      }
    } else {
      for (std::uint32_t k = threadIdx.x; k <= m; k += blockDim.x) {
        // X_k = (Z_k + conj(Z_{m-k}))/2 - i/2 W^k (Z_k - conj(Z_{m-k})), W = exp(-2 pi i/n), Z_m = Z_0
        const Complex<A> a = x[k == m ? 0 : k], b = x[k == 0 ? 0 : m - k];
        const Complex<A> turned = product(Complex<A>{a.re - b.re, a.im + b.im}, tables.split[k]);
        to[2 * static_cast<std::int64_t>(k)] = static_cast<T>((a.re + b.re + turned.im) / 2);
        to[2 * static_cast<std::int64_t>(k) + 1] = static_cast<T>((a.im - b.im - turned.re) / 2);
      }
    }
    __syncthreads();  // x and y are free again
  }
}

FftShape make_shape(std::int64_t n, std::int64_t points, std::int64_t rows) {
  FftShape shape{};
  shape.m = static_cast<std::uint32_t>(n / 2);
  shape.points = static_cast<std::uint32_t>(points);
  shape.rows = rows;
  std::uint32_t before = 1;
  for (const std::int64_t factor : fft_radices(points)) {
    const auto radix = static_cast<std::uint32_t>(factor);
    shape.pass[shape.passes++] = {radix, before, shape.points / (before * radix), FastDivide(before),
                                  FastDivide(shape.points / radix)};
    before *= radix;
  }
  return shape;
}

/// The tables of a length on a device, one after another: roots of n; for a convolution also the roots of its points, the chirp
/// and the spectrum.
template <class A>
std::vector<A> table_values(std::int64_t n, std::int64_t convolution) {
  std::vector<A> values;
  const auto push = [&](std::complex<double> number) {
    values.push_back(static_cast<A>(number.real()));
    values.push_back(static_cast<A>(number.imag()));
  };
  for (std::int64_t k = 0; k < n; ++k) push(unit_root(k, n));
  if (convolution == 0) return values;
  for (std::int64_t k = 0; k < convolution; ++k) push(unit_root(k, convolution));
  const ConvolutionTables tables = convolution_tables(n / 2);
  for (const std::complex<double> number : tables.chirp) push(number);
  for (const std::complex<double> number : tables.spectrum) push(number);
  return values;
}

/// Made once per length and kept: a program uses few lengths.
template <class A>
FftTables<A> tables_for(std::int64_t n, std::int64_t convolution, int device, cudaStream_t stream) {
  static std::mutex mutex;
  static auto* const tables =
      new std::map<std::pair<int, std::int64_t>, Tensor>;  // never destroyed: the driver may be gone by then
  const std::lock_guard lock(mutex);
  Tensor& table = (*tables)[{device, n}];
  if (!table.defined()) {
    refuse_capture("rfft: the first transform of a length");
    const std::vector<A> values = table_values<A>(n, convolution);
    const Tensor fresh = Tensor::empty({static_cast<std::int64_t>(values.size())}, {dtype_of<A>, Device::cuda(device)});
    CHECK_CUDA(cudaMemcpyAsync(fresh.raw(), values.data(), values.size() * sizeof(A), cudaMemcpyHostToDevice, stream));
    wait_for(stream);  // other streams may use it from now on
    table = fresh;
  }
  const auto* const roots = static_cast<const Complex<A>*>(table.raw());
  if (convolution == 0) return {roots, roots, 2, nullptr, nullptr};
  const Complex<A>* const chirp = roots + n + convolution;
  return {roots, roots + n, 1, chirp, chirp + n / 2};
}

/// Transforms rows of T, computed in A; `convolution` points, 0 for a plain transform.
template <class T, class A, bool kAdjoint>
void transform_in(const Tensor& out, const Tensor& in, std::int64_t n, std::int64_t convolution, cudaStream_t stream) {
  const int device = out.device().index;
  const std::int64_t rows = in.size(0);
  const FftShape shape = make_shape(n, convolution > 0 ? convolution : n / 2, rows);
  const FftTables<A> tables = tables_for<A>(n, convolution, device, stream);
  const std::size_t row_bytes = 2 * static_cast<std::size_t>(shape.points) * sizeof(Complex<A>);
  const bool fits = row_bytes <= static_cast<std::size_t>(properties(device).shared_bytes_per_block);
  const unsigned grid = fits ? grid_for(rows, 1) : grid_for(std::min<std::int64_t>(rows, properties(device).sm_count), 1);
  const Buffer global(fits ? 0 : grid * row_bytes, device);
  const int threads =
      std::clamp((static_cast<int>(std::min<std::uint32_t>(shape.points, kThreads)) + 31) / 32 * 32, 32, kThreads);
  auto* const kernel = fft_kernel<T, A, kAdjoint>;
  if (fits) allow_shared_memory(kernel, static_cast<std::int64_t>(row_bytes));
  kernel<<<grid, threads, fits ? row_bytes : 0, stream>>>(static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()),
                                                          fits ? nullptr : global.as<Complex<A>>(), tables, shape);
  check_launch(kAdjoint ? "rfft_adjoint" : "rfft");
}

/// `real` is the one of the two tensors that holds rows of n.
template <bool kAdjoint>
void transform(const char* operation, const Tensor& out, const Tensor& in, const Tensor& real, cudaStream_t stream) {
  const DType dtype = real.dtype();
  require<DTypeError>(dtype == DType::f32 || dtype == DType::f64, operation, ": expected f32 or f64, got ", dtype);
  if (real.numel() == 0) return;
  const std::int64_t n = real.size(-1);
  require<ShapeError>(n < std::int64_t{1} << 31, operation, ": expected n < 2^31, got ", n);
  const std::int64_t convolution = convolution_points(n / 2);
  if (dtype == DType::f64) return transform_in<double, double, kAdjoint>(out, in, n, convolution, stream);
  convolution > 0 ? transform_in<float, double, kAdjoint>(out, in, n, convolution, stream)
                  : transform_in<float, float, kAdjoint>(out, in, n, 0, stream);
}

}  // namespace

void rfft(const Tensor& out, const Tensor& in, cudaStream_t stream) { transform<false>("rfft", out, in, in, stream); }

void rfft_adjoint(const Tensor& out, const Tensor& in, cudaStream_t stream) {
  transform<true>("rfft_adjoint", out, in, out, stream);
}

}  // namespace polyphase::cuda
