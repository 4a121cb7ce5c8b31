// Real FFT of one row per vector lane. An ISA source: see the rules in cpu/isa_target.hpp.
//
// A real row of n is read as n/2 complex points, transformed by Stockham's self-sorting passes of radix 4, 2 or any other
// factor (C. Van Loan, "Computational frameworks for the fast Fourier transform", 1992, section 1.7), and split into the n/2 +
// 1 bins. For a large prime factor the passes are those of an equivalent convolution (tensor/fourier.hpp). Lanes are rows, so
// every operation is a whole vector and every twiddle a scalar; rows are transposed on the way in and out. About 2.5 n log2 n
// operations per row.

#include "cpu/linear/fft_kernels.hpp"

#include "cpu/isa_target.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

template <class V>
struct Complex {
  V re, im;
};
template <class V>
POLYPHASE_INLINE Complex<V> operator+(Complex<V> a, Complex<V> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class V>
POLYPHASE_INLINE Complex<V> operator-(Complex<V> a, Complex<V> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class V>
POLYPHASE_INLINE Complex<V> conj(Complex<V> a) {
  return {a.re, -a.im};
}
/// i*a
template <class V>
POLYPHASE_INLINE Complex<V> turn(Complex<V> a) {
  return {-a.im, a.re};
}
/// a times the twiddle at w, or its conjugate for the inverse.
template <bool kInverse, class V, class T>
POLYPHASE_INLINE Complex<V> rotate(Complex<V> a, const T* w) {
  const V re = broadcast(w[0]), im = broadcast(kInverse ? -w[1] : w[1]);
  return {a.re * re - a.im * im, fma(a.re, im, a.im * re)};
}

template <bool kInverse, class V, class T>
void pass2(const FftPass<T>& pass, std::int64_t stride, const Complex<V>* x, Complex<V>* y) {
  const std::int64_t m = pass.length / 2;
  for (std::int64_t p = 0; p < m; ++p)
    for (std::int64_t q = 0; q < stride; ++q) {
      const Complex<V> a = x[q + stride * p], b = x[q + stride * (p + m)];
      y[q + stride * 2 * p] = a + b;
      y[q + stride * (2 * p + 1)] = rotate<kInverse>(a - b, pass.twiddles + 2 * p);
    }
}

template <bool kInverse, class V, class T>
void pass4(const FftPass<T>& pass, std::int64_t stride, const Complex<V>* x, Complex<V>* y) {
  const std::int64_t m = pass.length / 4;
  for (std::int64_t p = 0; p < m; ++p) {
    const T* w = pass.twiddles + 6 * p;
    for (std::int64_t q = 0; q < stride; ++q) {
      const Complex<V>* from = x + q + stride * p;
      Complex<V>* to = y + q + stride * 4 * p;
      const Complex<V> a = from[0], b = from[stride * m], c = from[stride * 2 * m], d = from[stride * 3 * m];
      const Complex<V> even = a + c, odd = b + d, difference = a - c;
      const Complex<V> quarter = kInverse ? turn(b - d) : turn(d - b);
      to[0] = even + odd;
      to[stride] = rotate<kInverse>(difference + quarter, w);
      to[stride * 2] = rotate<kInverse>(even - odd, w + 2);
      to[stride * 3] = rotate<kInverse>(difference - quarter, w + 4);
    }
  }
}

constexpr std::int64_t kRun = 16;  // products that are summed together

// The sums over j of (x_j + x_{R-j}) cos and of (x_j - x_{R-j}) sin, with the k-th powers of the roots; `ahead` and `back` step
// through the points.
template <class V>
struct OddSums {
  Complex<V> even, odd;
};
template <class V, class T>
POLYPHASE_INLINE OddSums<V> sum_pairs(const FftPass<T>& pass, const Complex<V>* ahead, const Complex<V>* back,
                                      std::int64_t step, std::int64_t k) {
  V sums[4] = {};
  const std::int64_t pairs = pass.radix / 2;
  for (std::int64_t j = 0, turns = k; j < pairs;) {  // turns = (j + 1)*k mod radix
    const std::int64_t end = j + kRun < pairs ? j + kRun : pairs;
    V run[4] = {};  // summed separately, so that rounding does not grow with the square root of the radix
    for (; j < end; ++j) {
      const V cosine = broadcast(pass.roots[2 * turns]), sine = broadcast(pass.roots[2 * turns + 1]);
      run[0] = fma(ahead->re, cosine, run[0]);
      run[1] = fma(ahead->im, cosine, run[1]);
      run[2] = fma(back->re, sine, run[2]);
      run[3] = fma(back->im, sine, run[3]);
      ahead += step;
      back -= step;
      turns += k;
      turns -= turns >= pass.radix ? pass.radix : 0;
    }
    for (int i = 0; i < 4; ++i) sums[i] += run[i];
  }
  return {{sums[0], sums[1]}, {sums[2], sums[3]}};
}

// Any odd radix R, by its definition with x_j and x_{R-j} combined: half of the products and of the roundings.
template <bool kInverse, class V, class T>
void pass_odd(const FftPass<T>& pass, std::int64_t stride, Complex<V>* x, Complex<V>* y) {
  const std::int64_t radix = pass.radix, m = pass.length / radix, step = stride * m;
  for (std::int64_t p = 0; p < m; ++p)
    for (std::int64_t q = 0; q < stride; ++q) {
      Complex<V>* from = x + q + stride * p;
      Complex<V>* to = y + q + stride * radix * p;
      Complex<V> total = from[0];
      for (std::int64_t j = 1; j <= radix / 2; ++j) {  // x may be overwritten
        const Complex<V> a = from[step * j], b = from[step * (radix - j)];
        from[step * j] = a + b;
        from[step * (radix - j)] = a - b;
        total = total + (a + b);
      }
      to[0] = total;
      for (std::int64_t k = 1; k <= radix / 2; ++k) {
        const OddSums<V> sums = sum_pairs(pass, from + step, from + step * (radix - 1), step, k);
        const Complex<V> even = from[0] + sums.even, odd = turn(sums.odd);
        const T* w = pass.twiddles + 2 * (p * (radix - 1) - 1);
        to[stride * k] = rotate<kInverse>(kInverse ? even - odd : even + odd, w + 2 * k);
        to[stride * (radix - k)] = rotate<kInverse>(kInverse ? even + odd : even - odd, w + 2 * (radix - k));
      }
    }
}

/// Transforms x by the passes; returns whichever of x and y holds the result.
template <bool kInverse, class V, class T>
Complex<V>* run_passes(const FftTables<T>& tables, Complex<V>* x, Complex<V>* y) {
  std::int64_t stride = 1;
  for (std::int64_t i = 0; i < tables.pass_count; ++i) {
    const FftPass<T>& pass = tables.passes[i];
    if (pass.radix == 4) {
      pass4<kInverse>(pass, stride, x, y);
    } else if (pass.radix == 2) {
      pass2<kInverse>(pass, stride, x, y);
    } else {
      pass_odd<kInverse>(pass, stride, x, y);
    }
    stride *= pass.radix;
    Complex<V>* result = y;
    y = x;
    x = result;
  }
  return x;
}

/// Transforms the n/2 points in x; returns whichever of x and y holds the result. The inverse of a convolution has every table
/// conjugated, because its spectrum is even.
template <bool kInverse, class V, class T>
Complex<V>* transform(const FftTables<T>& tables, Complex<V>* x, Complex<V>* y) {
  if (tables.chirp == nullptr) return run_passes<kInverse>(tables, x, y);
  const std::int64_t m = tables.n / 2;
  for (std::int64_t k = 0; k < m; ++k) x[k] = rotate<kInverse>(x[k], tables.chirp + 2 * k);
  for (std::int64_t k = m; k < tables.points; ++k) x[k] = Complex<V>{};
  Complex<V>* a = run_passes<false>(tables, x, y);
  for (std::int64_t k = 0; k < tables.points; ++k) a[k] = rotate<kInverse>(a[k], tables.spectrum + 2 * k);
  Complex<V>* b = run_passes<true>(tables, a, a == x ? y : x);
  for (std::int64_t k = 0; k < m; ++k) b[k] = rotate<kInverse>(b[k], tables.chirp + 2 * k);
  return b;
}

constexpr std::int64_t kTile = 16;  // columns transposed together: a cache line of floats of every row

// (rows, count) to (count, lanes); lanes without a row are zero.
template <class E, class T>
void rows_to_lanes(const E* in, std::int64_t count, std::int64_t rows, T* out) {
  constexpr std::int64_t kRows = kLanes<T>;
  if (rows < kRows) std::memset(out, 0, static_cast<std::size_t>(count * kRows) * sizeof(T));
  for (std::int64_t t = 0; t < count; t += kTile) {
    const std::int64_t end = t + kTile < count ? t + kTile : count;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = t; i < end; ++i) out[i * kRows + r] = static_cast<T>(in[r * count + i]);
  }
}
template <class E, class T>
void lanes_to_rows(const T* in, std::int64_t count, std::int64_t rows, E* out) {
  constexpr std::int64_t kRows = kLanes<T>;
  for (std::int64_t t = 0; t < count; t += kTile) {
    const std::int64_t end = t + kTile < count ? t + kTile : count;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = t; i < end; ++i) out[r * count + i] = static_cast<E>(in[i * kRows + r]);
  }
}

// Complex vectors in one area of the scratch: the bins, or the points of a convolution.
template <class T>
std::int64_t area_size(const FftTables<T>& tables) {
  return tables.points > tables.n / 2 ? tables.points : tables.n / 2 + 1;
}
// Two areas.
template <class T>
std::int64_t scratch_size(const FftTables<T>& tables) {
  return 4 * area_size(tables) * kLanes<T>;
}

// From the transform z of even + i odd samples to that of all: E_k = (z_k + conj z_{m-k})/2, O_k = -i (z_k - conj z_{m-k})/2,
// X_k = E_k + exp(-2 pi i k/n) O_k.
template <class V, class T>
void split_bins(const FftTables<T>& tables, const Complex<V>* z, Complex<V>* bins) {
  const std::int64_t m = tables.n / 2;
  const V half = broadcast(static_cast<T>(0.5));
  for (std::int64_t k = 0; k <= m; ++k) {
    const Complex<V> a = z[k == m ? 0 : k], b = conj(z[k == 0 ? 0 : m - k]);
    const Complex<V> odd = rotate<false>(turn(b - a), tables.split + 2 * k);
    bins[k] = {half * (a.re + b.re + odd.re), half * (a.im + b.im + odd.im)};
  }
}

// The reverse, for the adjoint. It sums each bin once; an inverse transform counts all but the first and last twice.
template <class V, class T>
void join_bins(const FftTables<T>& tables, Complex<V>* bins, Complex<V>* z) {
  const std::int64_t m = tables.n / 2;
  const V half = broadcast(static_cast<T>(0.5));
  bins[0].im = bins[m].im = V{};
  for (std::int64_t k = 1; k < m; ++k) bins[k] = {half * bins[k].re, half * bins[k].im};
  for (std::int64_t k = 0; k < m; ++k) {
    const Complex<V> a = bins[k], b = conj(bins[m - k]);
    z[k] = a + b + turn(rotate<true>(a - b, tables.split + 2 * k));
  }
}

// The two areas of the scratch.
template <class T>
struct Areas {
  Complex<Vector<T>>* x;
  Complex<Vector<T>>* y;
  Areas(const FftTables<T>& tables, T* scratch) : x(reinterpret_cast<Complex<Vector<T>>*>(scratch)), y(x + area_size(tables)) {}
  Complex<Vector<T>>* other(const Complex<Vector<T>>* area) const { return area == x ? y : x; }
};

template <class T, class E>
void forward(const FftTables<T>& tables, const E* in, E* out, std::int64_t rows, T* scratch) {
  const Areas<T> areas(tables, scratch);
  rows_to_lanes(in, tables.n, rows, scratch);
  const auto* z = transform<false>(tables, areas.x, areas.y);
  auto* bins = areas.other(z);
  split_bins(tables, z, bins);
  lanes_to_rows(reinterpret_cast<const T*>(bins), tables.n + 2, rows, out);
}

template <class T, class E>
void adjoint(const FftTables<T>& tables, const E* in, E* out, std::int64_t rows, T* scratch) {
  const Areas<T> areas(tables, scratch);
  rows_to_lanes(in, tables.n + 2, rows, scratch);
  join_bins(tables, areas.x, areas.y);
  const auto* samples = transform<true>(tables, areas.y, areas.x);
  lanes_to_rows(reinterpret_cast<const T*>(samples), tables.n, rows, out);
}

template <class T, class E>
constexpr FftFunctions<T, E> kFunctions = {kLanes<T>, scratch_size<T>, forward<T, E>, adjoint<T, E>};

constexpr FftKernels kKernels = {kFunctions<float, float>, kFunctions<double, float>, kFunctions<double, double>};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const FftKernels& fft_kernels<Isa::POLYPHASE_ISA>() {
  return POLYPHASE_ISA::kKernels;
}

}  // namespace polyphase::cpu
