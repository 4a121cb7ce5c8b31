#include "cpu/elementwise/length.hpp"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
/// The accumulator type for elements of T.
template <class T>
using SumOf = std::conditional_t<kIsHalf<T>, float, T>;

std::int64_t rows_of(const Tensor& tensor) { return tensor.size(-1) == 0 ? 0 : tensor.numel() / tensor.size(-1); }

template <class T>
void gather_rows(T* out, const T* in, const std::int64_t* index, std::int64_t rows, std::int64_t J, std::int64_t I) {
  parallel_for(rows * J, kElementGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t flat = begin; flat < end;) {
      const std::int64_t r = flat / J;
      const std::int64_t row_end = std::min(end, (r + 1) * J);
      const std::int64_t* where = index - r * J;
      const T* row = in + r * I;
      for (; flat < row_end; ++flat) out[flat] = row[where[flat]];
    }
  });
}

// One row per step: the sum goes to `sum`, which is the output itself if no wider type is needed.
template <class T>
void scatter_rows(T* out, const T* in, const std::int64_t* index, std::int64_t rows, std::int64_t J, std::int64_t I) {
  parallel_for(rows, kElementGrain / std::max<std::int64_t>(1, I + J) + 1, [=](std::int64_t begin, std::int64_t end) {
    std::vector<SumOf<T>> wide(kIsHalf<T> ? static_cast<std::size_t>(I) : 0);
    for (std::int64_t r = begin; r < end; ++r) {
      T* row = out + r * I;
      SumOf<T>* sum = nullptr;
      if constexpr (kIsHalf<T>) {
        sum = wide.data();
      } else {
        sum = row;
      }
      std::fill(sum, sum + I, SumOf<T>{});
      for (std::int64_t j = 0; j < J; ++j) sum[index[j]] += static_cast<SumOf<T>>(in[r * J + j]);
      if constexpr (kIsHalf<T>) convert_elements(dtype_of<T>, row, DType::f32, sum, I);
    }
  });
}

struct Frames {
  std::int64_t count, size, step;  // F frames of W elements, `step` apart
};

// Adds all frames that reach positions [begin, begin + n) of a row of L to sum[0, n).
template <class T>
void add_frames(SumOf<T>* sum, const T* frames, std::int64_t begin, std::int64_t n, Frames f) {
  const std::int64_t first = begin < f.size ? 0 : (begin - f.size) / f.step + 1;
  const std::int64_t last = std::min(f.count, (begin + n + f.step - 1) / f.step);
  for (std::int64_t frame = first; frame < last; ++frame) {
    const std::int64_t start = frame * f.step - begin;  // where the frame begins, in sum
    const std::int64_t low = std::max<std::int64_t>(0, start);
    const std::int64_t high = std::min(n, start + f.size);
    const T* from = frames + frame * f.size - start;
    for (std::int64_t i = low; i < high; ++i) sum[i] += static_cast<SumOf<T>>(from[i]);
  }
}

// A task is a block of kBlock outputs, so that a single long row is shared between threads too.
template <class T>
void fold_rows(T* out, const T* in, std::int64_t rows, std::int64_t L, Frames f) {
  const std::int64_t blocks = (L + kBlock - 1) / kBlock;
  parallel_for(rows * blocks, kElementGrain / kBlock, [=](std::int64_t begin, std::int64_t end) {
    SumOf<T> sum[kBlock];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t r = task / blocks;
      const std::int64_t start = task % blocks * kBlock;
      const std::int64_t n = std::min(kBlock, L - start);
      std::fill(sum, sum + n, SumOf<T>{});
      add_frames(sum, in + r * f.count * f.size, start, n, f);
      convert_elements(dtype_of<T>, out + r * L + start, dtype_of<SumOf<T>>, sum, n);
    }
  });
}

}  // namespace

void check_index(const Tensor& index, std::int64_t length) {
  const std::int64_t* positions = index.data<std::int64_t>();
  for (std::int64_t j = 0; j < index.numel(); ++j)
    require<ShapeError>(positions[j] >= 0 && positions[j] < length, "index_select: expected positions in [0, ", length,
                        "), got ", positions[j]);
}

void gather(const Tensor& out, const Tensor& in, const Tensor& index) {
  if (out.numel() == 0) return;
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    gather_rows(out.data<T>(), in.data<T>(), index.data<std::int64_t>(), rows_of(out), out.size(-1), in.size(-1));
  });
}

void scatter_add(const Tensor& out, const Tensor& in, const Tensor& index) {
  if (out.numel() == 0) return;
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    scatter_rows(out.data<T>(), in.data<T>(), index.data<std::int64_t>(), rows_of(out), in.size(-1), out.size(-1));
  });
}

void fold(const Tensor& out, const Tensor& in, std::int64_t step) {
  if (out.numel() == 0) return;
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    fold_rows(out.data<T>(), in.data<T>(), rows_of(out), out.size(-1), Frames{in.size(-2), in.size(-1), step});
  });
}

}  // namespace polyphase::cpu
