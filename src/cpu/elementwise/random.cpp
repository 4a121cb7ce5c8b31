#include "cpu/elementwise/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <type_traits>

#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"
#include "device/backend.hpp"

namespace polyphase::cpu {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The numbers in [0, 1) of a block: four of 24 bits for float, two of 53 bits for double.
std::array<float, 4> unit_numbers(const Words& words, float) {
  std::array<float, 4> numbers{};
  for (std::size_t i = 0; i < 4; ++i) numbers[i] = static_cast<float>(words[i] >> 8) * 0x1p-24f;
  return numbers;
}
std::array<double, 2> unit_numbers(const Words& words, double) {
  std::array<double, 2> numbers{};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint64_t both = static_cast<std::uint64_t>(words[2 * i]) << 32 | words[2 * i + 1];
    numbers[i] = static_cast<double>(both >> 11) * 0x1p-53;
  }
  return numbers;
}

// `largest` is the limit that rounding may not exceed.
template <class T>
struct UniformTransform {
  double low, width;
  T largest;
  UniformTransform(double from, double to, DType dtype)
      : low(from), width(to - from), largest(static_cast<T>(uniform_limit(from, to, dtype))) {}
  template <class Numbers>
  void operator()(Numbers& numbers) const {
    for (T& u : numbers) u = std::min(static_cast<T>(low + static_cast<double>(u) * width), largest);
  }
};

// Pairs (u, v) to sqrt(-2 log(1 - u)) * (cos, sin)(2 pi v); 1 - u is exact and never 0.
struct NormalTransform {
  double mean, deviation;
  template <class Numbers>
  void operator()(Numbers& numbers) const {
    using T = typename Numbers::value_type;
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      const double radius = deviation * std::sqrt(-2 * std::log(1 - static_cast<double>(numbers[i])));
      const double angle = 2 * std::numbers::pi * static_cast<double>(numbers[i + 1]);
      numbers[i] = static_cast<T>(mean + radius * std::cos(angle));
      numbers[i + 1] = static_cast<T>(mean + radius * std::sin(angle));
    }
  }
};

// Numbers are generated as T, float or double, and rounded to out's dtype a buffer at a time.
template <class T, class Transform>
void fill_typed(const Tensor& out, GeneratorState state, const Transform& transform) {
  constexpr std::int64_t kPerBlock = std::is_same_v<T, float> ? 4 : 2;
  const std::int64_t count = out.numel();
  const auto size = static_cast<std::int64_t>(size_of(out.dtype()));
  char* to = static_cast<char*>(out.raw());
  parallel_for((count + kPerBlock - 1) / kPerBlock, kElementGrain / 16, [&](std::int64_t begin, std::int64_t end) {
    std::array<T, kBlock> buffer;
    for (std::int64_t first = begin * kPerBlock; first < std::min(count, end * kPerBlock); first += kBlock) {
      const std::int64_t n = std::min(kBlock, std::min(count, end * kPerBlock) - first);
      for (std::int64_t i = 0; i < n; i += kPerBlock) {
        const auto block = static_cast<std::uint64_t>((first + i) / kPerBlock);
        auto numbers = unit_numbers(philox4x32(state.seed, state.offset + block), T{});
        transform(numbers);
        std::copy(numbers.begin(), numbers.end(), buffer.begin() + i);
      }
      convert_elements(out.dtype(), to + first * size, dtype_of<T>, buffer.data(), n);
    }
  });
}

void require_floating(const char* operation, const Tensor& out) {
  require<DTypeError>(is_floating_point(out.dtype()), operation, ": expected a floating-point dtype, got ", out.dtype());
}

}  // namespace

void uniform(const Tensor& out, GeneratorState state, double low, double high) {
  require_floating("uniform", out);
  if (out.dtype() == DType::f64) return fill_typed<double>(out, state, UniformTransform<double>(low, high, DType::f64));
  fill_typed<float>(out, state, UniformTransform<float>(low, high, out.dtype()));
}

void normal(const Tensor& out, GeneratorState state, double mean, double deviation) {
  require_floating("normal", out);
  if (out.dtype() == DType::f64) return fill_typed<double>(out, state, NormalTransform{mean, deviation});
  fill_typed<float>(out, state, NormalTransform{mean, deviation});
}

}  // namespace polyphase::cpu
