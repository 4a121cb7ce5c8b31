// Moves elements; memory bound. Four ways, from special to general:
//   cudaMemcpyAsync           both sides flat, one dtype
//   convert_kernel            both sides flat, two dtypes: four elements per thread (other layouts need a copy before or after)
//   transpose_kernel          one dtype, contiguous along different dimensions: tiles of 32 x 32 through shared memory
//   copy_strided_kernel       every other layout: four neighbouring flat positions per thread

#include "cuda/elementwise/copy.hpp"

#include <algorithm>

#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/dry_run.hpp"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kPack = 4;      // elements per thread
constexpr int kTile = 32;     // rows and columns of a tile of a transposition
constexpr int kTileRows = 8;  // rows of a tile that a block of 32 x 8 threads moves at a time

template <class To, class From>
__global__ void __launch_bounds__(kThreads) convert_kernel(To* out, const From* in, std::int64_t count, bool aligned) {
  for (std::int64_t flat = thread_position() * kPack; flat < count; flat += thread_count() * kPack) {
    if (aligned && flat + kPack <= count) {
      const auto from = *reinterpret_cast<const Pack<From, kPack>*>(in + flat);
      Pack<To, kPack> to;
#pragma unroll
      for (int i = 0; i < kPack; ++i) to.at[i] = convert<To>(from.at[i]);
      *reinterpret_cast<Pack<To, kPack>*>(out + flat) = to;
    } else {
#pragma unroll 1
      for (int i = 0; i < kPack; ++i)
        if (flat + i < count) out[flat + i] = convert<To>(in[flat + i]);
    }
  }
}

// Two roundings as on the CPU, not one of a fused multiply-add.
template <class T>
__global__ void __launch_bounds__(kThreads) arange_kernel(T* out, std::int64_t count, double start, double step) {
  for (std::int64_t i = thread_position(); i < count; i += thread_count())
    out[i] = convert<T>(__dadd_rn(start, __dmul_rn(static_cast<double>(i), step)));
}

// Copies between two strided layouts. Loads come before stores, so that four are outstanding.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_strided_kernel(T* out, const T* in, const __grid_constant__ Strided<2> space) {
  const int last = space.rank - 1;
  const std::int64_t inner = space.sizes[last].size;
  for (std::int64_t flat = thread_position() * kPack; flat < space.count; flat += thread_count() * kPack) {
    std::int64_t index = 0, to = 0, from = 0;
    space.walk(flat, [&](int d, std::int64_t i) {
      to += i * space.strides[0][d];
      from += i * space.strides[1][d];
      if (d == last) index = i;
    });
    std::int64_t place[kPack];
    T value[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      if (flat + i >= space.count) break;
      if (index == inner) {
        index = 0;
        to = space.offset(0, flat + i);
        from = space.offset(1, flat + i);
      }
      place[i] = to;
      value[i] = in[from];
      ++index;
      to += space.strides[0][last];
      from += space.strides[1][last];
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (flat + i < space.count) out[place[i]] = value[i];
  }
}

// out (batch, rows, columns) contiguous along columns, in along rows.
struct Transposition {
  Strided<2> batch;
  std::int64_t rows, columns, tasks;  // tasks: (batch, tile of rows, tile of columns)
  Divider by_row_tiles, by_column_tiles;
  bool narrow;                     // fewer than 2^31 tasks
  std::int64_t out_step, in_step;  // from row to row of out, from column to column of in
};

template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(T* out, const T* in, const __grid_constant__ Transposition t) {
  __shared__ T tile[kTile][kTile + 1];  // (column, row); padded by one against bank conflicts
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  for (std::int64_t task = blockIdx.x; task < t.tasks; task += gridDim.x) {
    std::int64_t column = task;
    const std::int64_t band = t.by_column_tiles.split(column, t.narrow);
    std::int64_t row = band;
    const std::int64_t b = t.by_row_tiles.split(row, t.narrow);
    row *= kTile, column *= kTile;
    const T* from = in + t.batch.offset(1, b);
    T* to = out + t.batch.offset(0, b);
#pragma unroll
    for (int j = y; j < kTile; j += kTileRows)
      if (row + x < t.rows && column + j < t.columns) tile[j][x] = from[(column + j) * t.in_step + row + x];
    __syncthreads();
#pragma unroll
    for (int j = y; j < kTile; j += kTileRows)
      if (row + j < t.rows && column + x < t.columns) to[(row + j) * t.out_step + column + x] = tile[x][j];
    __syncthreads();
  }
}

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The dimension along which `in` is contiguous, if it is not the innermost and both are large enough for tiles; else -1.
int transposed_dimension(const Loop& loop) {
  if (loop.inner_stride(0) != 1 || loop.inner_stride(1) <= 1 || loop.inner_size() < kTile / 2) return -1;
  for (int d = 0; d < loop.rank - 1; ++d)
    if (loop.strides[1][at(d)] == 1 && loop.sizes[at(d)] >= kTile / 2) return d;
  return -1;
}

bool copy_by_tiles(const Loop& loop, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  const int dimension = transposed_dimension(loop);
  if (dimension < 0) return false;
  const auto d = at(dimension), inner = at(loop.rank - 1);
  Transposition t{};
  t.rows = loop.sizes[d], t.columns = loop.sizes[inner];
  const std::int64_t row_tiles = (t.rows + kTile - 1) / kTile, column_tiles = (t.columns + kTile - 1) / kTile;
  t.by_row_tiles = Divider(row_tiles), t.by_column_tiles = Divider(column_tiles);
  t.out_step = loop.strides[0][d], t.in_step = loop.strides[1][inner];
  Loop rest = loop;  // the loop without these two dimensions
  rest.sizes[d] = rest.sizes[inner] = 1;
  rest.count = loop.count / (t.rows * t.columns);
  t.batch = Strided<2>(rest);
  t.tasks = rest.count * row_tiles * column_tiles;
  t.narrow = t.tasks < std::int64_t{1} << 31;
  const unsigned grid = grid_for(t.tasks, 1);
  dispatch_size(size_of(out.dtype()), [&]<class T>(T) {
    transpose_kernel<T><<<grid, kTile * kTileRows, 0, stream>>>(static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()), t);
  });
  check_launch("copy (transposed)");
  return true;
}

// Both flat, dtypes differ.
void convert_flat(const Tensor& out, const Tensor& in, cudaStream_t stream) {
  const unsigned grid = grid_for((out.numel() + kPack - 1) / kPack);
  dispatch_element(out.dtype(), [&]<class To>(To) {
    dispatch_element(in.dtype(), [&]<class From>(From) {
      if constexpr (!std::is_same_v<To, From>) {
        const bool aligned =
            is_aligned(out.raw(), alignof(Pack<To, kPack>)) && is_aligned(in.raw(), alignof(Pack<From, kPack>));
        convert_kernel<<<grid, kThreads, 0, stream>>>(static_cast<To*>(out.raw()), static_cast<const From*>(in.raw()),
                                                      out.numel(), aligned);
      }
    });
  });
  check_launch("copy (converted)");
}

void convert_any(const Loop& loop, const Tensor& out, const Tensor& in, cudaStream_t stream) {
  if (loop.is_flat(0) && loop.is_flat(1)) return convert_flat(out, in, stream);
  if (!out.is_contiguous()) {
    const Tensor converted = Tensor::empty(out.shape(), {out.dtype(), out.device()});
    copy(converted, in, stream);
    return copy(out, converted, stream);
  }
  const Tensor flat = Tensor::empty(in.shape(), {in.dtype(), in.device()});
  copy(flat, in, stream);
  convert_flat(out, flat, stream);
}

template <class T>
__global__ void __launch_bounds__(kThreads) fill_flat_kernel(T* out, std::int64_t count, T value) {
  constexpr int kWide = 16 / sizeof(T);
  Pack<T, kWide> pack;
#pragma unroll
  for (int i = 0; i < kWide; ++i) pack.at[i] = value;
  for (std::int64_t flat = thread_position() * kWide; flat < count; flat += thread_count() * kWide) {
    if (flat + kWide <= count) {
      *reinterpret_cast<Pack<T, kWide>*>(out + flat) = pack;
    } else {
      for (; flat < count; ++flat) out[flat] = value;
      return;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) fill_strided_kernel(T* out, const __grid_constant__ Strided<1> space, T value) {
  for (std::int64_t flat = thread_position(); flat < space.count; flat += thread_count()) out[space.offset(0, flat)] = value;
}

// The bits of `value` in a dtype, in the low bytes.
std::uint64_t pattern_of(double value, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return std::bit_cast<std::uint64_t>(value);
    case DType::f32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16:
      return __half_as_ushort(__double2half(value));
    case DType::bf16:
      return __bfloat16_as_ushort(__double2bfloat16(value));
    case DType::i64:
      break;
  }
  if (value != value) return 0;
  if (value >= 0x1p63) return static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value < -0x1p63) return static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::min());
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

}  // namespace

void copy(const Tensor& out, const Tensor& in, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const Loop loop = make_loop(out, {&in, 1});
  if (out.dtype() != in.dtype()) return convert_any(loop, out, in, stream);
  const std::size_t size = size_of(out.dtype());
  if (loop.is_flat(0) && loop.is_flat(1)) {
    if (in_dry_run()) return;
    CHECK_CUDA(
        cudaMemcpyAsync(out.raw(), in.raw(), static_cast<std::size_t>(loop.count) * size, cudaMemcpyDeviceToDevice, stream));
    return;
  }
  if (copy_by_tiles(loop, out, in, stream)) return;
  dispatch_size(size, [&]<class T>(T) {
    copy_strided_kernel<<<grid_for((loop.count + kPack - 1) / kPack), kThreads, 0, stream>>>(
        static_cast<T*>(out.raw()), static_cast<const T*>(in.raw()), Strided<2>(loop));
  });
  check_launch("copy (strided)");
}

void fill(const Tensor& out, double value, cudaStream_t stream) {
  if (out.numel() == 0) return;
  const Loop loop = make_loop(out, {});
  const std::uint64_t pattern = pattern_of(value, out.dtype());
  const std::size_t size = size_of(out.dtype());
  if (loop.is_flat(0) && pattern == 0) {
    CHECK_CUDA(cudaMemsetAsync(out.raw(), 0, static_cast<std::size_t>(loop.count) * size, stream));
    return;
  }
  dispatch_size(size, [&]<class T>(T) {
    auto* to = static_cast<T*>(out.raw());
    if (loop.is_flat(0) && is_aligned(to, 16)) {
      const auto wide = static_cast<std::int64_t>(16 / sizeof(T));
      fill_flat_kernel<<<grid_for((loop.count + wide - 1) / wide), kThreads, 0, stream>>>(to, loop.count,
                                                                                          static_cast<T>(pattern));
    } else {
      fill_strided_kernel<<<grid_for(loop.count), kThreads, 0, stream>>>(to, Strided<1>(loop), static_cast<T>(pattern));
    }
  });
  check_launch("fill");
}

void arange(const Tensor& out, double start, double step, cudaStream_t stream) {
  const std::int64_t count = out.numel();
  if (count == 0) return;
  dispatch_element(out.dtype(), [&]<class T>(T) {
    arange_kernel<<<grid_for(count), kThreads, 0, stream>>>(static_cast<T*>(out.raw()), count, start, step);
  });
  check_launch("arange");
}

void copy_to_host(void* host_data, const void* device_data, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return;
  CHECK_CUDA(cudaMemcpyAsync(host_data, device_data, bytes, cudaMemcpyDeviceToHost, stream));
  wait_for(stream);
}

}  // namespace polyphase::cuda
