#include "cpu/elementwise/pad.hpp"

#include <algorithm>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/elementwise/run_sum.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

/// The accumulator type for elements of T.
template <class T>
using SumOfRun = std::conditional_t<std::is_same_v<T, std::int64_t>, T, Compute<T>>;

/// A row of L elements with `left` before them, `size` in all.
struct Row {
  std::int64_t L, left, size;
  PaddingMode mode;
};

// out[0, n) = columns [begin, begin + n) outside the row's own elements: all before them, or all after.
template <class T>
void fill_edge(T* out, const T* in, std::int64_t begin, std::int64_t n, const Row& row) {
  if (n <= 0) return;
  const bool is_left = begin < row.left;
  switch (row.mode) {
    case PaddingMode::zeros:
      std::fill(out, out + n, T{});
      return;
    case PaddingMode::replicate:
      std::fill(out, out + n, in[is_left ? 0 : row.L - 1]);
      return;
    case PaddingMode::reflect:
      const T* first = in + (is_left ? row.left - begin : 2 * (row.L - 1) + row.left - begin);  // of column `begin`
      std::reverse_copy(first - n + 1, first + 1, out);
  }
}

// Columns [begin, end) of one row.
template <class T>
void pad_columns(T* out, const T* in, std::int64_t begin, std::int64_t end, const Row& row) {
  const std::int64_t first = std::clamp(row.left, begin, end), last = std::clamp(row.left + row.L, begin, end);
  fill_edge(out, in, begin, first - begin, row);
  if (last > first) std::copy(in + first - row.left, in + last - row.left, out + first - begin);
  fill_edge(out + last - begin, in, last, end - last, row);
}

// Element i: the sum of all columns that hold it, ascending.
template <class T>
T reflected_sum(const T* in, std::int64_t i, const Row& row) {
  using Sum = SumOfRun<T>;
  const std::int64_t mirrored = 2 * (row.L - 1) - i + row.left;  // after the row
  Sum sum = static_cast<Sum>(in[row.left + i]);
  if (i >= 1 && i <= row.left) sum = static_cast<Sum>(in[row.left - i]) + sum;
  if (i <= row.L - 2 && mirrored < row.size) sum += static_cast<Sum>(in[mirrored]);
  return static_cast<T>(sum);
}
template <class T>
T replicated_sum(const T* in, std::int64_t i, const Row& row) {
  const std::int64_t begin = i == 0 ? 0 : row.left + i, end = i == row.L - 1 ? row.size : row.left + i + 1;
  return static_cast<T>(run_sum<SumOfRun<T>>(in + begin, end - begin));
}

// Elements [begin, end) of one row: those that the padding also holds are sums, the others are copies.
template <class T>
void add_columns(T* out, const T* in, std::int64_t begin, std::int64_t end, const Row& row) {
  const bool reflects = row.mode == PaddingMode::reflect;
  const std::int64_t after = row.size - row.left - row.L;
  const std::int64_t low = std::clamp(reflects ? row.left + 1 : 1, begin, end);
  const std::int64_t high = std::clamp(reflects ? row.L - 1 - after : row.L - 1, low, end);
  const auto sum = reflects ? reflected_sum<T> : replicated_sum<T>;
  for (std::int64_t i = begin; i < low; ++i) out[i - begin] = sum(in, i, row);
  std::copy(in + row.left + low, in + row.left + high, out + low - begin);
  for (std::int64_t i = high; i < end; ++i) out[i - begin] = sum(in, i, row);
}

// Calls work(row, begin, end) for all columns [0, size) of all rows, in pieces that threads share.
template <class Work>
void for_each_piece(std::int64_t rows, std::int64_t size, const Work& work) {
  parallel_for(rows * size, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t flat = begin; flat < end;) {
      const std::int64_t r = flat / size;
      const std::int64_t stop = std::min(end, (r + 1) * size);
      work(r, flat - r * size, stop - r * size);
      flat = stop;
    }
  });
}

}  // namespace

void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) {
  if (out.numel() == 0) return;
  const Row row{in.size(-1), left, out.size(-1), mode};
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    T* to = out.data<T>();
    const T* from = in.data<T>();
    for_each_piece(out.numel() / row.size, row.size, [=](std::int64_t r, std::int64_t begin, std::int64_t end) {
      pad_columns(to + r * row.size + begin, from + r * row.L, begin, end, row);
    });
  });
}

void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode) {
  if (out.numel() == 0) return;
  const Row row{out.size(-1), left, in.size(-1), mode};
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    T* to = out.data<T>();
    const T* from = in.data<T>();
    for_each_piece(out.numel() / row.L, row.L, [=](std::int64_t r, std::int64_t begin, std::int64_t end) {
      add_columns(to + r * row.L + begin, from + r * row.size, begin, end, row);
    });
  });
}

}  // namespace polyphase::cpu
