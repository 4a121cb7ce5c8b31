#include "cpu/elementwise/copy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/elementwise/convert.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kTile = 32;  // a tile of a transposition: its rows and its columns both stay in L1

// Rounds to the neighbouring float with its last bit set if that is inexact. Rounded again to a 16-bit type, it gives the same
// result as one rounding from double (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest) || (std::bit_cast<std::uint32_t>(nearest) & 1u) != 0)
    return nearest;
  const float away = std::numeric_limits<float>::infinity();
  return std::nextafter(nearest, static_cast<double>(nearest) < value ? away : -away);
}

std::int64_t to_integer(double value) {
  constexpr double kEnd = 0x1p63;
  if (std::isnan(value)) return 0;
  if (value >= kEnd) return std::numeric_limits<std::int64_t>::max();
  if (value < -kEnd) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

template <class To, class From>
To convert(From value) {
  constexpr bool kFromHalf = std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>;
  constexpr bool kToHalf = std::is_same_v<To, Half> || std::is_same_v<To, BFloat16>;
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kFromHalf) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (kToHalf && std::is_same_v<From, float>) {
    return To(value);
  } else if constexpr (kToHalf) {
    return To(round_to_odd(static_cast<double>(value)));
  } else if constexpr (std::is_same_v<To, std::int64_t>) {
    return to_integer(static_cast<double>(value));
  } else {
    return static_cast<To>(value);
  }
}

std::uint16_t* bits(void* halves) { return static_cast<std::uint16_t*>(halves); }
const std::uint16_t* bits(const void* halves) { return static_cast<const std::uint16_t*>(halves); }

// The pairs that have vector instructions; false for the others.
bool convert_by_kernel(DType to_type, void* to, DType from_type, const void* from, std::int64_t count) {
  const ConvertKernels& kernels = convert_kernels();
  if (from_type == DType::f32 && to_type == DType::f16) {
    kernels.f32_to_f16(static_cast<const float*>(from), bits(to), count);
  } else if (from_type == DType::f32 && to_type == DType::bf16) {
    kernels.f32_to_bf16(static_cast<const float*>(from), bits(to), count);
  } else if (from_type == DType::f16 && to_type == DType::f32) {
    kernels.f16_to_f32(bits(from), static_cast<float*>(to), count);
  } else if (from_type == DType::bf16 && to_type == DType::f32) {
    kernels.bf16_to_f32(bits(from), static_cast<float*>(to), count);
  } else {
    return false;
  }
  return true;
}

char* address(const Tensor& tensor, std::int64_t element) {
  return static_cast<char*>(tensor.raw()) + element * static_cast<std::int64_t>(size_of(tensor.dtype()));
}

// Flat positions [begin, end) through blocks: gather, convert and scatter, each only if needed.
void copy_range(const Loop& loop, const Tensor& out, const Tensor& in, std::int64_t begin, std::int64_t end) {
  const bool flat_out = loop.is_flat(0);
  const bool flat_in = loop.is_flat(1);
  if (flat_out && flat_in)
    return convert_elements(out.dtype(), address(out, begin), in.dtype(), address(in, begin), end - begin);
  alignas(64) std::array<char, kBlock * 8> gathered;
  alignas(64) std::array<char, kBlock * 8> converted;
  for (std::int64_t flat = begin; flat < end; flat += kBlock) {
    const std::int64_t n = std::min(kBlock, end - flat);
    const void* from = flat_in ? address(in, flat) : gathered.data();
    if (!flat_in) gather_elements(loop, 1, in.raw(), flat, n, size_of(in.dtype()), gathered.data());
    void* to = flat_out ? address(out, flat) : converted.data();
    convert_elements(out.dtype(), to, in.dtype(), from, n);
    if (!flat_out) scatter_elements(loop, 0, out.raw(), flat, n, size_of(out.dtype()), to);
  }
}

// The dimension along which `in` is contiguous, if it is not the innermost and both are large enough for tiles; else -1.
int transposed_dimension(const Loop& loop) {
  if (loop.inner_stride(0) != 1 || loop.inner_stride(1) <= 1 || loop.inner_size() < 4) return -1;
  for (int d = 0; d < loop.rank - 1; ++d)
    if (loop.strides[1][static_cast<std::size_t>(d)] == 1 && loop.sizes[static_cast<std::size_t>(d)] >= 4) return d;
  return -1;
}

template <class T>
void transpose_tile(const T* in, T* out, std::int64_t in_step, std::int64_t out_step, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) std::memcpy(&out[r * out_step + c], &in[c * in_step + r], sizeof(T));
}

// out(.., r, .., c) = in, contiguous along r in `in` and along c in `out`, in tiles. A task is a band of kTile rows.
template <class T>
void copy_transposed(const Loop& loop, int dimension, T* out, const T* in) {
  const auto d = static_cast<std::size_t>(dimension);
  const auto inner = static_cast<std::size_t>(loop.rank - 1);
  const std::int64_t rows = loop.sizes[d];
  const std::int64_t columns = loop.sizes[inner];
  Loop rest = loop;  // the loop without these two dimensions
  rest.sizes[d] = rest.sizes[inner] = 1;
  rest.count = loop.count / (rows * columns);
  const std::int64_t bands = (rows + kTile - 1) / kTile;
  parallel_for(rest.count * bands, kElementGrain / (kTile * columns) + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const LoopPosition position(rest, task / bands);
      const std::int64_t r = task % bands * kTile;
      T* to = out + position.offset(0) + r * loop.strides[0][d];
      const T* from = in + position.offset(1) + r;
      for (std::int64_t c = 0; c < columns; c += kTile)
        transpose_tile(from + c * loop.strides[1][inner], to + c, loop.strides[1][inner], loop.strides[0][d],
                       std::min(kTile, rows - r), std::min(kTile, columns - c));
    }
  });
}

bool copy_by_tiles(const Loop& loop, const Tensor& out, const Tensor& in) {
  const int dimension = transposed_dimension(loop);
  if (dimension < 0 || out.dtype() != in.dtype()) return false;
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    copy_transposed(loop, dimension, static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()));
  });
  return true;
}

}  // namespace

void convert_elements(DType to_type, void* to, DType from_type, const void* from, std::int64_t count) {
  if (to_type == from_type) {
    if (count > 0) std::memmove(to, from, static_cast<std::size_t>(count) * size_of(to_type));
    return;
  }
  if (convert_by_kernel(to_type, to, from_type, from, count)) return;
  dispatch(to_type, [&](auto to_element) {
    dispatch(from_type, [&](auto from_element) {
      using To = decltype(to_element);
      using From = decltype(from_element);
      const From* source = static_cast<const From*>(from);
      To* target = static_cast<To*>(to);
      for (std::int64_t i = 0; i < count; ++i) target[i] = convert<To>(source[i]);
    });
  });
}

void copy(const Tensor& out, const Tensor& in) {
  if (out.numel() == 0) return;
  const Loop loop = make_loop(out, {&in, 1});
  if (copy_by_tiles(loop, out, in)) return;
  parallel_for(loop.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) { copy_range(loop, out, in, begin, end); });
}

void fill(const Tensor& out, double value) {
  if (out.numel() == 0) return;
  const Loop loop = make_loop(out, {});
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    const T converted = convert<T>(value);
    T* first = static_cast<T*>(out.raw());
    parallel_for(loop.count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      LoopPosition position(loop, begin);
      for (std::int64_t flat = begin; flat < end;) {
        const std::int64_t n = std::min(end - flat, position.left_in_row());
        T* row = first + position.offset(0);
        for (std::int64_t i = 0; i < n; ++i) row[i * loop.inner_stride(0)] = converted;
        position.advance(n);
        flat += n;
      }
    });
  });
}

void arange(const Tensor& out, double start, double step) {
  dispatch(out.dtype(), [&]<class T>(T) {
    T* values = static_cast<T*>(out.raw());
    parallel_for(out.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[i] = convert<T>(start + static_cast<double>(i) * step);
    });
  });
}

}  // namespace polyphase::cpu
