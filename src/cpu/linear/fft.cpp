#include "cpu/linear/fft.hpp"

#include <algorithm>
#include <complex>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/linear/fft_kernels.hpp"
#include "cpu/threads.hpp"
#include "tensor/fourier.hpp"

namespace polyphase::cpu {
namespace {

// The tables of one length, with the memory they point into.
template <class T>
class FftPlan {
 public:
  explicit FftPlan(std::int64_t n) {
    const std::int64_t m = n / 2, convolution = std::is_same_v<T, double> ? convolution_points(m) : 0;
    const std::int64_t points = convolution > 0 ? convolution : m;
    std::vector<std::size_t> starts;
    std::int64_t length = points;
    for (const std::int64_t radix : fft_radices(points)) {
      starts.push_back(numbers_.size());
      for (std::int64_t p = 0; p < length / radix; ++p)
        for (std::int64_t k = 1; k < radix; ++k) push(unit_root(p * k, length));
      starts.push_back(numbers_.size());
      for (std::int64_t j = 0; j < radix; ++j) push(unit_root(j, radix));
      passes_.push_back({radix, length, nullptr, nullptr});
      length /= radix;
    }
    const std::size_t split = numbers_.size();
    for (std::int64_t k = 0; k <= m; ++k) push(unit_root(k, n));
    const std::size_t chirp = numbers_.size();
    if (convolution > 0) push_convolution(m);
    for (std::size_t i = 0; i < passes_.size(); ++i) {  // the numbers no longer move
      passes_[i].twiddles = numbers_.data() + starts[2 * i];
      passes_[i].roots = numbers_.data() + starts[2 * i + 1];
    }
    const T* const start = convolution > 0 ? numbers_.data() + chirp : nullptr;
    tables_ = {n,
               passes_.data(),
               static_cast<std::int64_t>(passes_.size()),
               points,
               start,
               start == nullptr ? nullptr : start + 2 * m,
               numbers_.data() + split};
  }
  [[nodiscard]] const FftTables<T>& tables() const { return tables_; }

 private:
  void push(std::complex<double> number) {
    numbers_.push_back(static_cast<T>(number.real()));
    numbers_.push_back(static_cast<T>(number.imag()));
  }
  void push_convolution(std::int64_t m) {
    const ConvolutionTables tables = convolution_tables(m);
    for (const std::complex<double> number : tables.chirp) push(number);
    for (const std::complex<double> number : tables.spectrum) push(number);
  }

  std::vector<T> numbers_;
  std::vector<FftPass<T>> passes_;
  FftTables<T> tables_{};
};

// Plans are made once per length and kept: a program uses few lengths.
template <class T>
const FftTables<T>& tables_for(std::int64_t n) {
  static std::mutex mutex;
  static std::map<std::int64_t, std::unique_ptr<FftPlan<T>>> plans;
  const std::lock_guard lock(mutex);
  std::unique_ptr<FftPlan<T>>& plan = plans[n];
  if (!plan) plan = std::make_unique<FftPlan<T>>(n);
  return plan->tables();
}

// Runs `step` of `kernels` over groups of rows, as many rows as there are lanes.
template <class T, class E, class Step>
void run_rows(const FftFunctions<T, E>& kernels, Step FftFunctions<T, E>::*step, const Tensor& out, const Tensor& in,
              std::int64_t n, std::int64_t rows) {
  const FftTables<T>& tables = tables_for<T>(n);
  const std::int64_t out_row = out.numel() / rows;
  const std::int64_t in_row = in.numel() / rows;
  const std::int64_t groups = (rows + kernels.lanes - 1) / kernels.lanes;
  const std::int64_t grain = kElementGrain / 4 / (tables.n * kernels.lanes) + 1;
  parallel_for(groups, grain, [&](std::int64_t begin, std::int64_t end) {
    const auto size = static_cast<std::size_t>(kernels.scratch(tables)) + 64;
    std::unique_ptr<T[]> memory(new T[size]);
    void* start = memory.get();
    std::size_t space = size * sizeof(T);
    T* scratch = static_cast<T*>(std::align(64, (size - 64) * sizeof(T), start, space));
    for (std::int64_t group = begin; group < end; ++group) {
      const std::int64_t first = group * kernels.lanes;
      (kernels.*step)(tables, in.data<E>() + first * in_row, out.data<E>() + first * out_row,
                      std::min(kernels.lanes, rows - first), scratch);
    }
  });
}

// Calls run(kernels) with the kernels for the dtype and length of `real` (R, n).
template <class Run>
void with_kernels(const char* operation, const Tensor& real, const Run& run) {
  const DType dtype = real.dtype();
  require<DTypeError>(dtype == DType::f32 || dtype == DType::f64, operation, ": expected f32 or f64, got ", dtype);
  if (real.numel() == 0) return;
  if (dtype == DType::f64) return run(fft_kernels().f64);
  convolution_points(real.size(-1) / 2) > 0 ? run(fft_kernels().wide) : run(fft_kernels().f32);
}

}  // namespace

void rfft(const Tensor& out, const Tensor& in) {
  with_kernels("rfft", in, [&]<class T, class E>(const FftFunctions<T, E>& kernels) {
    run_rows(kernels, &FftFunctions<T, E>::forward, out, in, in.size(-1), in.size(0));
  });
}

void rfft_adjoint(const Tensor& out, const Tensor& in) {
  with_kernels("rfft_adjoint", out, [&]<class T, class E>(const FftFunctions<T, E>& kernels) {
    run_rows(kernels, &FftFunctions<T, E>::adjoint, out, in, out.size(-1), out.size(0));
  });
}

}  // namespace polyphase::cpu
