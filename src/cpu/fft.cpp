#include "cpu/fft.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <vector>

#include "cpu/elementwise_loop.hpp"
#include "cpu/fft_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

std::vector<std::int64_t> radices_of(std::int64_t m) {
  std::vector<std::int64_t> radices;
  for (; m % 4 == 0; m /= 4) radices.push_back(4);
  for (std::int64_t radix = 2; m > 1; ++radix) {
    if (radix * radix > m) radix = m;  // what is left is a prime
    for (; m % radix == 0; m /= radix) radices.push_back(radix);
  }
  return radices;
}

// The tables of one length, with the memory they point into.
template <class T>
class FftPlan {
 public:
  explicit FftPlan(std::int64_t n) {
    const std::int64_t m = n / 2;
    std::vector<std::size_t> starts;
    std::int64_t length = m;
    for (const std::int64_t radix : radices_of(m)) {
      starts.push_back(numbers_.size());
      for (std::int64_t p = 0; p < length / radix; ++p)
        for (std::int64_t k = 1; k < radix; ++k) push_root(p * k, length);
      starts.push_back(numbers_.size());
      for (std::int64_t j = 0; j < radix; ++j) push_root(j, radix);
      passes_.push_back({radix, length, nullptr, nullptr});
      length /= radix;
    }
    const std::size_t split = numbers_.size();
    for (std::int64_t k = 0; k <= m; ++k) push_root(k, n);
    for (std::size_t i = 0; i < passes_.size(); ++i) {  // now that the numbers stay where they are
      passes_[i].twiddles = numbers_.data() + starts[2 * i];
      passes_[i].roots = numbers_.data() + starts[2 * i + 1];
    }
    tables_ = {n, passes_.data(), static_cast<std::int64_t>(passes_.size()), numbers_.data() + split};
  }
  [[nodiscard]] const FftTables<T>& tables() const { return tables_; }

 private:
  // exp(-2 pi i a/b), computed in double from the reduced fraction.
  void push_root(std::int64_t a, std::int64_t b) {
    const double angle = -2 * std::numbers::pi * static_cast<double>(a % b) / static_cast<double>(b);
    numbers_.push_back(static_cast<T>(std::cos(angle)));
    numbers_.push_back(static_cast<T>(std::sin(angle)));
  }

  std::vector<T> numbers_;
  std::vector<FftPass<T>> passes_;
  FftTables<T> tables_{};
};

// Plans are made once per length and kept: a program uses a handful.
template <class T>
const FftTables<T>& tables_for(std::int64_t n) {
  static std::mutex mutex;
  static std::map<std::int64_t, std::unique_ptr<FftPlan<T>>> plans;
  const std::lock_guard lock(mutex);
  std::unique_ptr<FftPlan<T>>& plan = plans[n];
  if (!plan) plan = std::make_unique<FftPlan<T>>(n);
  return plan->tables();
}

template <class T>
const FftFunctions<T>& functions() {
  if constexpr (std::is_same_v<T, float>) {
    return fft_kernels().f32;
  } else {
    return fft_kernels().f64;
  }
}

// Runs `function` over groups of as many rows as it has lanes.
template <class T, class Function>
void run_rows(const FftTables<T>& tables, const Tensor& out, const Tensor& in, std::int64_t rows,
              Function FftFunctions<T>::*step) {
  const FftFunctions<T>& kernels = functions<T>();
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
      (kernels.*step)(tables, in.data<T>() + first * in_row, out.data<T>() + first * out_row,
                      std::min(kernels.lanes, rows - first), scratch);
    }
  });
}

// Calls function(T{}) with float or double.
template <class Function>
void for_real(const char* operation, const Tensor& tensor, const Function& function) {
  require<DTypeError>(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64, operation, ": expected f32 or f64, got ",
                      tensor.dtype());
  tensor.dtype() == DType::f32 ? function(float{}) : function(double{});
}

}  // namespace

void rfft(const Tensor& out, const Tensor& in) {
  if (in.numel() == 0) return;
  for_real("rfft", in, [&](auto element) {
    using T = decltype(element);
    const std::int64_t n = in.size(-1);
    run_rows(tables_for<T>(n), out, in, in.numel() / n, &FftFunctions<T>::forward);
  });
}

void rfft_adjoint(const Tensor& out, const Tensor& in) {
  if (out.numel() == 0) return;
  for_real("rfft_adjoint", out, [&](auto element) {
    using T = decltype(element);
    const std::int64_t n = out.size(-1);
    run_rows(tables_for<T>(n), out, in, out.numel() / n, &FftFunctions<T>::adjoint);
  });
}

}  // namespace polyphase::cpu
