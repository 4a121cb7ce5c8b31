// Products of rows with one vector, and the gates of an LSTM. An ISA source: see the rules in cpu/isa_target.hpp.

#include "cpu/linear/lstm_kernels.hpp"

#include "cpu/elementwise/elementwise_math.hpp"

namespace polyphase::cpu {
namespace POLYPHASE_ISA {
namespace {

constexpr int kRows = 4;    // rows whose products are computed together
constexpr int kChains = 2;  // independent sums per row

// Loads up to a vector's elements, with zeros past them.
template <class T>
POLYPHASE_INLINE Vector<T> load_part(const T* from, std::int64_t count) {
  Vector<T> v{};
  std::memcpy(&v, from, static_cast<std::size_t>(count) * sizeof(T));
  return v;
}
template <class T>
POLYPHASE_INLINE void store_part(T* to, Vector<T> v, std::int64_t count) {
  std::memcpy(to, &v, static_cast<std::size_t>(count) * sizeof(T));
}

template <class T>
POLYPHASE_INLINE T sum_lanes(Vector<T> v) {
  T lanes[kLanes<T>];
  store(lanes, v);
  for (int width = kLanes<T> / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

template <int rows, class T>
POLYPHASE_INLINE void add_rows(T* out, const T* w, const T* h, std::int64_t K) {
  constexpr int kStep = kLanes<T>;
  Vector<T> sums[rows][kChains]{};
  std::int64_t k = 0;
  for (; k + kChains * kStep <= K; k += kChains * kStep)
#pragma GCC unroll 2
    for (int chain = 0; chain < kChains; ++chain) {
      const Vector<T> x = load(h + k + chain * kStep);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[r][chain] = fma(load(w + r * K + k + chain * kStep), x, sums[r][chain]);
    }
  for (int chain = 0; k < K; k += kStep, ++chain) {
    const std::int64_t count = K - k < kStep ? K - k : kStep;
    const Vector<T> x = load_part(h + k, count);
    for (int r = 0; r < rows; ++r) sums[r][chain] = fma(load_part(w + r * K + k, count), x, sums[r][chain]);
  }
  for (int r = 0; r < rows; ++r) out[r] += sum_lanes<T>(sums[r][0] + sums[r][1]);
}

template <class T>
void add_products(T* out, const T* w, std::int64_t rows, const T* h, std::int64_t K) {
  std::int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) add_rows<kRows>(out + r, w + r * K, h, K);
  for (; r < rows; ++r) add_rows<1>(out + r, w + r * K, h, K);
}

template <class T>
void cell(T* gates, const T* cell, T* new_hidden, T* new_cell, std::int64_t H) {
  T* const at[4] = {gates, gates + H, gates + 2 * H, gates + 3 * H};
  for (std::int64_t j = 0; j < H; j += kLanes<T>) {
    const std::int64_t count = H - j < kLanes<T> ? H - j : kLanes<T>;
    const Vector<T> i = sigmoid(load_part(at[0] + j, count)), f = sigmoid(load_part(at[1] + j, count));
    const Vector<T> g = tanh(load_part(at[2] + j, count)), o = sigmoid(load_part(at[3] + j, count));
    const Vector<T> c = fma(i, g, f * load_part(cell + j, count));
    store_part(at[0] + j, i, count);
    store_part(at[1] + j, f, count);
    store_part(at[2] + j, g, count);
    store_part(at[3] + j, o, count);
    store_part(new_cell + j, c, count);
    store_part<T>(new_hidden + j, o * tanh(c), count);
  }
}

template <class T>
constexpr LstmKernels<T> kKernels = {add_products<T>, cell<T>};

}  // namespace
}  // namespace POLYPHASE_ISA

template <>
const LstmKernels<float>& lstm_kernels<Isa::POLYPHASE_ISA, float>() {
  return POLYPHASE_ISA::kKernels<float>;
}
template <>
const LstmKernels<double>& lstm_kernels<Isa::POLYPHASE_ISA, double>() {
  return POLYPHASE_ISA::kKernels<double>;
}

}  // namespace polyphase::cpu
