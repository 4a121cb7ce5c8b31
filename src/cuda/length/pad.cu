// Padding of rows, memory bound. A thread writes 16 aligned bytes. If all of them come from one row, they are extracted from 32
// aligned bytes at any distance; the ends of rows are copied element by element.

#include "cuda/length/pad.hpp"

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/length/run_sum.cuh"
#include "cuda/runtime/runtime.hpp"
#include "device/backend.hpp"

namespace polyphase::cuda {
namespace {

// Rows of L elements with `left` before them, `size` in all.
struct PadRows {
  std::int64_t L, left, size;
  PaddingMode mode;
};

// A read-only contiguous array.
template <class T>
struct Source {
  const T* begin;
  const T* end;
};

template <class T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));
template <class T>
using Wide = Pack<T, kWide<T>>;

// kWide elements from `from` on; false if the 16-byte pieces around them reach outside the array.
template <class T>
__device__ __forceinline__ bool load_wide(Wide<T>& to, const T* from, const Source<T>& source) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const auto shift = static_cast<unsigned>(address & 15);
  const auto* pieces = reinterpret_cast<const uint4*>(address - shift);
  if (pieces < reinterpret_cast<const uint4*>(source.begin) || pieces + 2 > reinterpret_cast<const uint4*>(source.end))
    return false;
  const uint4 a = pieces[0], b = shift == 0 ? a : pieces[1];
  unsigned word[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  if ((shift & 8) != 0) {
#pragma unroll
    for (int i = 0; i < 6; ++i) word[i] = word[i + 2];
  }
  if ((shift & 4) != 0) {
#pragma unroll
    for (int i = 0; i < 5; ++i) word[i] = word[i + 1];
  }
  const unsigned bits = (shift & 3) * 8;
  auto* const result = reinterpret_cast<unsigned*>(&to);
#pragma unroll
  for (int i = 0; i < 4; ++i) result[i] = __funnelshift_r(word[i], word[i + 1], bits);
  return true;
}

template <class T>
__device__ __forceinline__ void store_wide(T* out, std::int64_t flat, std::int64_t count, bool aligned, const Wide<T>& pack) {
  if (aligned && flat + kWide<T> <= count) {
    *reinterpret_cast<Wide<T>*>(out + flat) = pack;
  } else {
#pragma unroll
    for (int v = 0; v < kWide<T>; ++v)
      if (flat + v < count) out[flat + v] = pack.at[v];
  }
}

// Column j of a row that begins at `row`.
template <class T>
__device__ __forceinline__ T padded_element(const T* row, std::int64_t j, const PadRows& rows) {
  std::int64_t i = j - rows.left;
  if (i < 0 || i >= rows.L) {
    if (rows.mode == PaddingMode::zeros) return T(0);
    if (rows.mode == PaddingMode::replicate)
      i = i < 0 ? 0 : rows.L - 1;
    else
      i = i < 0 ? -i : 2 * (rows.L - 1) - i;
  }
  return row[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_kernel(T* out, Source<T> source, std::int64_t count, PadRows rows, Divider by_size, bool narrow, bool aligned) {
  for (std::int64_t flat = thread_position() * kWide<T>; flat < count; flat += thread_count() * kWide<T>) {
    std::int64_t j = flat;
    const T* row = source.begin + by_size.split(j, narrow) * rows.L;
    Wide<T> pack;
    const bool is_inside = j >= rows.left && j + kWide<T> <= rows.left + rows.L;
    if (!is_inside || !load_wide(pack, row + j - rows.left, source)) {
#pragma unroll
      for (int v = 0; v < kWide<T>; ++v) {
        if (flat + v < count) pack.at[v] = padded_element(row, j, rows);
        if (++j == rows.size) j = 0, row += rows.L;
      }
    }
    store_wide(out, flat, count, aligned, pack);
  }
}

// Element i: the sum of all columns that hold it, ascending; at most Backend::kRun of them.
template <class T>
__device__ __forceinline__ T column_sum(const T* row, std::int64_t i, const PadRows& rows) {
  using Sum = MathOf<T>;
  if (rows.mode == PaddingMode::replicate) {
    const std::int64_t begin = i == 0 ? 0 : rows.left + i, end = i == rows.L - 1 ? rows.size : rows.left + i + 1;
    if (end - begin > Backend::kRun) return T(0);  // sum_runs() follows
    Sum sum = convert<Sum>(row[begin]);
    for (std::int64_t j = begin + 1; j < end; ++j) sum += convert<Sum>(row[j]);
    return convert<T>(sum);
  }
  const std::int64_t mirrored = 2 * (rows.L - 1) - i + rows.left;  // after the row
  Sum sum = convert<Sum>(row[rows.left + i]);
  if (i >= 1 && i <= rows.left) sum = convert<Sum>(row[rows.left - i]) + sum;
  if (i <= rows.L - 2 && mirrored < rows.size) sum += convert<Sum>(row[mirrored]);
  return convert<T>(sum);
}

// Elements [low, high) of a row are not in the padding.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_backward_kernel(T* out, Source<T> source, std::int64_t count, PadRows rows, std::int64_t low, std::int64_t high,
                        Divider by_length, bool narrow, bool aligned) {
  for (std::int64_t flat = thread_position() * kWide<T>; flat < count; flat += thread_count() * kWide<T>) {
    std::int64_t i = flat;
    const T* row = source.begin + by_length.split(i, narrow) * rows.size;
    Wide<T> pack;
    if (i < low || i + kWide < T >> high || !load_wide(pack, row + rows.left + i, source)) {
#pragma unroll
      for (int v = 0; v < kWide<T>; ++v) {
        if (flat + v < count) pack.at[v] = column_sum(row, i, rows);
        if (++i == rows.L) i = 0, row += rows.size;
      }
    }
    store_wide(out, flat, count, aligned, pack);
  }
}

// End elements of a replicated padding that are held by too many columns for one thread.
template <class T>
void sum_ends(T* out, const T* in, std::int64_t count, const PadRows& rows, int device, cudaStream_t stream) {
  const auto sum = [&](std::int64_t i) {
    const std::int64_t begin = i == 0 ? 0 : rows.left + i, end = i == rows.L - 1 ? rows.size : rows.left + i + 1;
    if (end - begin > Backend::kRun)
      sum_runs<T, T>({out + i, rows.L}, {in + begin, rows.size}, count, end - begin, device, stream);
  };
  sum(0);
  if (rows.L > 1) sum(rows.L - 1);
}

bool is_narrow(std::int64_t count, std::int64_t size) { return count < std::int64_t{1} << 31 && size < std::int64_t{1} << 31; }

template <class T>
Source<T> source_of(const Tensor& in) {
  const auto* begin = static_cast<const T*>(in.raw());
  return {begin, begin + in.numel()};
}

}  // namespace

void pad(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode, cudaStream_t stream) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  const PadRows rows{in.size(-1), left, out.size(-1), mode};
  dispatch_size(size_of(out.dtype()), [&]<class T>(T) {
    pad_kernel<T><<<grid_for((count + kWide<T> - 1) / kWide<T>), kThreads, 0, stream>>>(
        static_cast<T*>(out.raw()), source_of<T>(in), count, rows, Divider(rows.size), is_narrow(count, rows.size),
        is_aligned(out.raw(), 16));
  });
  check_launch("pad1d");
}

void pad_backward(const Tensor& out, const Tensor& in, std::int64_t left, PaddingMode mode, cudaStream_t stream) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  const PadRows rows{out.size(-1), left, in.size(-1), mode};
  const bool reflects = mode == PaddingMode::reflect;
  const std::int64_t low = reflects ? left + 1 : 1, high = rows.L - 1 - (reflects ? rows.size - rows.L - left : 0);
  dispatch_element(out.dtype(), [&]<class T>(T) {
    auto* const to = static_cast<T*>(out.raw());
    const Source<T> source = source_of<T>(in);
    pad_backward_kernel<T><<<grid_for((count + kWide<T> - 1) / kWide<T>), kThreads, 0, stream>>>(
        to, source, count, rows, low, high, Divider(rows.L), is_narrow(count, rows.L), is_aligned(to, 16));
    check_launch("pad1d: backward");
    if (!reflects) sum_ends(to, source.begin, count / rows.L, rows, out.device().index, stream);
  });
}

}  // namespace polyphase::cuda
