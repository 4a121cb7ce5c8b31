#include "cpu/elementwise/rope.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

template <class T>
struct Turn {
  T cosine, sine;
};

/// (L, D/2)
template <class T>
std::vector<Turn<T>> turns(std::int64_t L, std::int64_t half, const Rotation& rotation) {
  const auto* const positions = rotation.positions.defined() ? rotation.positions.data<std::int64_t>() : nullptr;
  const bool is_listed = positions != nullptr && rotation.positions.numel() == L;
  std::vector<double> frequencies(static_cast<std::size_t>(half));
  const double step = -std::log(rotation.base) / static_cast<double>(std::max<std::int64_t>(1, half));
  for (std::int64_t i = 0; i < half; ++i)
    frequencies[static_cast<std::size_t>(i)] =
        rotation.frequencies.defined() ? rotation.frequencies.data<double>()[i] : std::exp(static_cast<double>(i) * step);
  std::vector<Turn<T>> all(static_cast<std::size_t>(L * half));
  parallel_for(L, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t l = begin; l < end; ++l)
      for (std::int64_t i = 0; i < half; ++i) {
        const auto position = static_cast<double>(positions == nullptr ? rotation.offset + l
                                                  : is_listed          ? positions[l]
                                                                       : positions[0] + l);
        const double angle = position * frequencies[static_cast<std::size_t>(i)];
        const double sine = std::sin(angle);
        all[static_cast<std::size_t>(l * half + i)] = {static_cast<T>(std::cos(angle)),
                                                       static_cast<T>(rotation.reversed ? -sine : sine)};
      }
  });
  return all;
}

template <class T>
void rope_as(const Tensor& out, const Tensor& x, const Rotation& rotation) {
  const std::int64_t B = x.size(1), L = x.size(2), D = x.size(3), half = D / 2, rows = x.size(0) * B * L;
  const std::vector<Turn<T>> all = turns<T>(L, half, rotation);
  const std::int64_t pair = rotation.interleaved ? 2 : 1, other = rotation.interleaved ? 1 : half, along = x.stride(3);
  const T* const from = x.data<T>();
  T* const to = out.data<T>();
  parallel_for(rows, kElementGrain / std::max<std::int64_t>(1, D) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t l = row % L, b = row / L % B, a = row / L / B;
      const T* const in = from + a * x.stride(0) + b * x.stride(1) + l * x.stride(2);
      T* const result = to + row * D;
      const Turn<T>* const turn = all.data() + l * half;
      for (std::int64_t i = 0; i < half; ++i) {
        const T first = in[i * pair * along], second = in[(i * pair + other) * along];
        result[i * pair] = first * turn[i].cosine - second * turn[i].sine;
        result[i * pair + other] = second * turn[i].cosine + first * turn[i].sine;
      }
    }
  });
}

}  // namespace

void rope(const Tensor& out, const Tensor& x, const Rotation& rotation) {
  if (out.numel() == 0) return;
  if (out.dtype() == DType::f16 || out.dtype() == DType::bf16) {
    const TensorOptions wide{DType::f32, Device::cpu()};
    const Tensor from = Tensor::empty(x.shape(), wide), to = Tensor::empty(x.shape(), wide);
    copy(from, x);
    rope_as<float>(to, from, rotation);
    return copy(out, to);
  }
  if (out.dtype() == DType::f64) return rope_as<double>(out, x, rotation);
  rope_as<float>(out, x, rotation);
}

}  // namespace polyphase::cpu
