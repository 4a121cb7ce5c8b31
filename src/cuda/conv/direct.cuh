#pragma once
// The general forward/dgrad kernel on FFMA: any S, P, OP, D, G, K and length (tap_gemm.hpp has the mathematics).
//
// GEMM mapping: gemm_m = positions, gemm_n = columns (channel, class), gemm_k = (row, tap). A block owns kTileP positions of
// one sample and group times kTileC columns; a thread kThreadP positions, 32 or more apart, times kThreadC neighbouring
// columns. For every gemm_k step a thread reads kThreadP words of the source window and kThreadC/4 quads of weights for
// kThreadP*kThreadC FFMAs. Source window and weights come through three stages of shared memory by cp.async (f32, f64) or
// converted loads (f16, bf16), one barrier a step; each source element is loaded once per block and serves every tap. With a
// stride, results leave through shared memory, so that stores run along the row. Operations 2*N*C_in*C_out/G*K*L_in; bytes:
// source once per column tile, weights once per block from L2, output once.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <cstdint>

#include "cuda/conv/epilogue.cuh"
#include "cuda/conv/tap_gemm.hpp"
#include "cuda/conv/vector.cuh"
#include "cuda/fast_divide.cuh"

namespace polyphase::cuda::direct {

/// How one launch cuts gemm_k into steps; chosen on the host so that two stages fit shared memory.
struct Steps {
  int rows, planes, taps;  // of one step
  int row_steps, plane_steps, tap_steps;
  int window;                      // source positions of one row and plane in a step
  int source_words, weight_words;  // of one stage; the packed weights of a step are weight_words in a row
  std::int64_t position_tiles, column_tiles, blocks;
  FastDivide by_planes, by_stride, by_gcd, by_classes;
  FastDivide by_column_tiles, by_position_tiles, by_groups;  // for block numbers below 2^31
};

/// Where a block works.
struct Place {
  std::int64_t n, g, position, column;
};

template <int kTileP, int kTileC>
__device__ __forceinline__ Place place_of(std::int64_t block, const TapGemm& form, const Steps& steps) {
  Place place;
  if (steps.blocks <= 0x7fffffff) {
    const auto index = static_cast<std::uint32_t>(block);
    const std::uint32_t above_columns = steps.by_column_tiles.divide(index);
    const std::uint32_t above_positions = steps.by_position_tiles.divide(above_columns);
    const std::uint32_t n = steps.by_groups.divide(above_positions);
    place.column = static_cast<std::int64_t>(index - above_columns * steps.by_column_tiles.divisor) * kTileC;
    place.position = static_cast<std::int64_t>(above_columns - above_positions * steps.by_position_tiles.divisor) * kTileP;
    place.g = above_positions - n * steps.by_groups.divisor;
    place.n = n;
  } else {
    place.column = block % steps.column_tiles * kTileC;
    block /= steps.column_tiles;
    place.position = block % steps.position_tiles * kTileP;
    block /= steps.position_tiles;
    place.g = block % form.G;
    place.n = block / form.G;
  }
  place.position += form.position_begin;
  return place;
}

/// One step's counters, advanced taps first.
struct Cursor {
  int row = 0, plane = 0, tap = 0;
  __device__ __forceinline__ void advance(const Steps& steps) {
    if (++tap < steps.tap_steps) return;
    tap = 0;
    if (++plane < steps.plane_steps) return;
    plane = 0;
    ++row;
  }
};

/// source[row][window] from rows that hold the whole window: a warp a row, nothing tested.
template <class T, int kThreads>
__device__ __forceinline__ void copy_rows(const T* __restrict__ from, std::int64_t length, int rows, int window, T* source) {
  constexpr int kWarps = kThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  from += warp * length + lane;
  source += warp * window + lane;
  for (int r = warp; r < rows; r += kWarps, from += kWarps * length, source += kWarps * window) {
#pragma unroll 4
    for (int u = 0; u < window - lane; u += 32) __pipeline_memcpy_async(source + u, from + u, sizeof(T));
  }
}

/// Fills source[row][plane][window] of one step; zero outside the rows of the tensor.
template <class T, class A, int kThreads>
__device__ __forceinline__ void load_source(const TapGemm& form, const Steps& steps, const Place& place, const Cursor& cursor,
                                            const T* __restrict__ global, A* source) {
  const std::int64_t row0 = static_cast<std::int64_t>(cursor.row) * steps.rows;
  const int plane0 = cursor.plane * steps.planes;
  const std::int64_t u0 = place.position + static_cast<std::int64_t>(cursor.tap) * steps.taps * form.tap_step;
  const std::int64_t e0 = form.source_stride * u0 + plane0 * form.source_plane_step + form.source_origin;
  const T* base = global + ((place.n * form.G + place.g) * form.rows + row0) * form.source_length + e0;
  const int pitch = steps.planes * steps.window;
  const int rows = static_cast<int>(min(static_cast<std::int64_t>(steps.rows), form.rows - row0));
  const int planes = static_cast<int>(min(static_cast<std::int64_t>(steps.planes), form.planes - plane0));
  if constexpr (std::is_same_v<T, A>) {
    if (steps.planes == 1 && form.source_stride == 1 && e0 >= 0 && e0 + steps.window <= form.source_length) {
      return copy_rows<T, kThreads>(base, form.source_length, rows, steps.window, source);
    }
  }
  // Offsets from e0 stay within 32 bits: a window of a few hundred positions times the stride.
  const int first = static_cast<int>(max(-e0, static_cast<std::int64_t>(-0x7fffffff)));
  const int last = static_cast<int>(min(form.source_length - e0, static_cast<std::int64_t>(0x7fffffff)));
  for (int i = static_cast<int>(threadIdx.x); i < pitch; i += kThreads) {
    int u = i, plane = 0;
    if (steps.planes > 1) {
      u = static_cast<int>(steps.by_planes.divide(static_cast<std::uint32_t>(i)));
      plane = i - u * steps.planes;
    }
    const int e = static_cast<int>(form.source_stride) * u + plane * static_cast<int>(form.source_plane_step);
    const bool inside = e >= first && e < last && plane < planes;
    A* to = source + plane * steps.window + u;
    const T* from = inside ? base + e : global;
    const std::int64_t advance = inside ? form.source_length : 0;
    const std::size_t zeros = inside ? 0 : sizeof(A);
#pragma unroll 4
    for (int r = 0; r < rows; ++r, to += pitch, from += advance) {
      if constexpr (std::is_same_v<T, A>) {
        __pipeline_memcpy_async(to, from, sizeof(A), zeros);
      } else {
        *to = inside ? static_cast<A>(*from) : A(0);
      }
    }
  }
}

/// Fills weights[tap][plane][row][kTileC] of one step: one run of the packed weights.
template <class A, int kThreads>
__device__ __forceinline__ void load_weights(const Steps& steps, const A* __restrict__ packed, A* weights) {
  constexpr int kVector = 16 / sizeof(A);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * kVector; i < steps.weight_words; i += kThreads * kVector) {
    __pipeline_memcpy_async(weights + i, packed + i, 16);
  }
}

/// The sums of one step. `masked` bits of columns that have no tap in window 0 (their class has one tap less) are skipped
/// there, so that a non-finite source value never meets a weight that does not exist.
template <class A, int kTileP, int kTileC, int kThreadP, int kThreadC>
__device__ __forceinline__ void multiply(const TapGemm& form, const Steps& steps, const Cursor& cursor, const A* source,
                                         const A* weights, int lane, int column, unsigned masked,
                                         A (&sums)[kThreadP][kThreadC]) {
  constexpr int kLanes = kTileP / kThreadP;
  const int pitch = steps.planes * steps.window;
  const int taps = min(steps.taps, static_cast<int>(form.taps) - cursor.tap * steps.taps);
  const int rows = static_cast<int>(
      min(static_cast<std::int64_t>(steps.rows), form.rows - static_cast<std::int64_t>(cursor.row) * steps.rows));
  for (int tap = 0; tap < taps; ++tap) {
    const bool ragged = masked != 0 && cursor.tap == 0 && tap == 0;
    const bool last = cursor.tap * steps.taps + tap == form.taps - 1;
    const int planes = min(steps.planes, static_cast<int>(last ? form.full_planes : form.planes) - cursor.plane * steps.planes);
    for (int plane = 0; plane < planes; ++plane) {
      const A* x = source + plane * steps.window + tap * static_cast<int>(form.tap_step) + lane;
      const A* w = weights + (tap * steps.planes + plane) * steps.rows * kTileC + column;
      auto accumulate = [&](auto skip) {
#pragma unroll(decltype(skip)::value ? 1 : 4)
        for (int r = 0; r < rows; ++r, x += pitch, w += kTileC) {
          A xs[kThreadP];
          alignas(16) A ws[kThreadC];
#pragma unroll
          for (int p = 0; p < kThreadP; ++p) xs[p] = x[p * kLanes];
          load_vector(w, ws);
#pragma unroll
          for (int c = 0; c < kThreadC; ++c) {
            if (decltype(skip)::value && ((masked >> c) & 1U) != 0) continue;
#pragma unroll
            for (int p = 0; p < kThreadP; ++p) sums[p][c] += xs[p] * ws[c];
          }
        }
      };
      if (ragged)
        accumulate(std::true_type{});
      else
        accumulate(std::false_type{});
    }
  }
}

/// sums = epilogue(sums + bias), where there is anything to do.
template <class T, class A, int kThreadP, int kThreadC>
__device__ __forceinline__ void finish(const TapGemm& form, const Steps& steps, const Place& place, const T* __restrict__ bias,
                                       const Epilogue& epilogue, int column, A (&sums)[kThreadP][kThreadC]) {
  if (bias != nullptr) {
#pragma unroll
    for (int c = 0; c < kThreadC; ++c) {
      const std::int64_t channel = steps.by_classes.divide(static_cast<std::uint32_t>(place.column + column + c));
      const A offset = channel < form.out_channels ? static_cast<A>(bias[place.g * form.out_channels + channel]) : A(0);
#pragma unroll
      for (int p = 0; p < kThreadP; ++p) sums[p][c] += offset;
    }
  }
  if (epilogue.activation == Activation::none) return;
#pragma unroll
  for (int c = 0; c < kThreadC; ++c) {
#pragma unroll
    for (int p = 0; p < kThreadP; ++p) sums[p][c] = epilogue.apply(sums[p][c]);
  }
}

/// What is written where no tap reaches.
template <class T, class A>
__device__ __forceinline__ A without_taps(const TapGemm& form, const Place& place, std::int64_t channel,
                                          const T* __restrict__ bias, const Epilogue& epilogue) {
  return bias != nullptr ? epilogue.apply(static_cast<A>(bias[place.g * form.out_channels + channel])) : A(0);
}

/// Writes a block's sums where positions are neighbours in the output: straight from the registers.
template <class T, class A, int kTileP, int kThreadP, int kThreadC>
__device__ __forceinline__ void store_rows(const TapGemm& form, const Place& place, T* __restrict__ out, int lane, int column,
                                           const A (&sums)[kThreadP][kThreadC]) {
  constexpr int kLanes = kTileP / kThreadP;
  const std::int64_t tile_begin = place.position + form.out_origin;
  const std::int64_t channel0 = place.column + column;
  const std::int64_t row0 = (place.n * form.G + place.g) * form.out_channels + channel0;
  T* row = out + row0 * form.out_length + tile_begin + lane;
  auto write = [&](auto inside) {
#pragma unroll
    for (int c = 0; c < kThreadC; ++c, row += form.out_length) {
      if (channel0 + c >= form.out_channels) break;
#pragma unroll
      for (int p = 0; p < kThreadP; ++p) {
        if (inside(p)) row[p * kLanes] = static_cast<T>(sums[p][c]);
      }
    }
  };
  if (tile_begin >= 0 && tile_begin + kTileP <= form.out_length) return write([](int) { return true; });
  bool inside[kThreadP];
#pragma unroll
  for (int p = 0; p < kThreadP; ++p) {
    const std::int64_t t = tile_begin + lane + p * kLanes;
    inside[p] = t >= 0 && t < form.out_length;
  }
  write([&](int p) { return inside[p]; });
}

/// Whether store_runs can write this form: the outputs of one position are `kRun` neighbours, all classes of one channel or one
/// class and positions without a tap.
__device__ __forceinline__ bool is_run(const TapGemm& form, int run, int thread_columns) {
  if (form.out_stride != run) return false;
  const bool by_class = form.classes == run && form.out_class_step == 1 && form.out_gcd == 1 && thread_columns % run == 0;
  const bool by_residue = form.classes == 1 && form.out_gcd == run;
  return by_class || by_residue;
}

/// Writes a block's sums with stride kRun straight from the registers: a thread's kRun neighbours at once where the row is
/// aligned.
template <int kRun, class T, class A, int kTileP, int kThreadP, int kThreadC>
__device__ __forceinline__ void store_runs(const TapGemm& form, const Place& place, const T* __restrict__ bias,
                                           const Epilogue& epilogue, T* __restrict__ out, int lane, int column,
                                           const A (&sums)[kThreadP][kThreadC]) {
  constexpr int kLanes = kTileP / kThreadP;
  constexpr int kVector = kRun * sizeof(T) < 16 ? kRun : 16 / sizeof(T);
  struct alignas(kVector * sizeof(T)) Pack {
    T values[kVector];
  };
  const std::int64_t t0 = kRun * (place.position + lane) + form.out_origin;
  auto write = [&](auto by_class) {
    constexpr bool kByClass = decltype(by_class)::value;
    constexpr int kStep = kByClass ? kRun : 1;
    if constexpr (kThreadC % kStep == 0) {
      const std::int64_t channel0 = (place.column + column) / kStep;
      T* row = out + ((place.n * form.G + place.g) * form.out_channels + channel0) * form.out_length;
#pragma unroll
      for (int c = 0; c < kThreadC / kStep; ++c, row += form.out_length) {
        if (channel0 + c >= form.out_channels) break;
        const A rest = kByClass ? A(0) : without_taps<T, A>(form, place, channel0 + c, bias, epilogue);
        const bool aligned =
            reinterpret_cast<std::uintptr_t>(row + t0) % sizeof(Pack) == 0;  // the same for every position of a row
#pragma unroll
        for (int p = 0; p < kThreadP; ++p) {
          const std::int64_t t = t0 + p * kLanes * kRun;
          T values[kRun];
#pragma unroll
          for (int r = 0; r < kRun; ++r) {
            const A sum = kByClass ? sums[p][(c * kStep + r) % kThreadC] : (r == 0 ? sums[p][c] : rest);
            values[r] = static_cast<T>(sum);
          }
          if (aligned && t >= 0 && t + kRun <= form.out_length) {
#pragma unroll
            for (int r = 0; r < kRun; r += kVector) {
              Pack pack;
#pragma unroll
              for (int v = 0; v < kVector; ++v) pack.values[v] = values[r + v];
              *reinterpret_cast<Pack*>(row + t + r) = pack;
            }
          } else {
#pragma unroll
            for (int r = 0; r < kRun; ++r) {
              if (t + r >= 0 && t + r < form.out_length) row[t + r] = values[r];
            }
          }
        }
      }
    }
  };
  if (form.out_gcd == 1)
    write(std::true_type{});
  else
    write(std::false_type{});
}

/// Writes a block's sums in the order of the output row, kPass columns at a time through `stage` [kPass][kTileP + 1].
template <class T, class A, int kTileP, int kTileC, int kThreadP, int kThreadC, int kThreads, int kPass>
__device__ __forceinline__ void store_phases(const TapGemm& form, const Steps& steps, const Place& place,
                                             const T* __restrict__ bias, const Epilogue& epilogue, T* __restrict__ out,
                                             A* stage, int lane, int column, const A (&sums)[kThreadP][kThreadC]) {
  constexpr int kLanes = kTileP / kThreadP;
  constexpr int kPitch = kTileP + 1;
  const int classes = static_cast<int>(form.classes);
  const int stride = static_cast<int>(form.out_stride);
  const std::int64_t t0 = form.out_stride * place.position + form.out_origin;
  const int positions =
      static_cast<int>(min(static_cast<std::int64_t>(kTileP), form.position_begin + form.position_count - place.position));
  for (int pass = 0; pass < kTileC; pass += kPass) {
    const std::int64_t begin = place.column + pass;
    if (begin >= form.columns) break;
    __syncthreads();
    if (column >= pass && column < pass + kPass) {
#pragma unroll
      for (int c = 0; c < kThreadC; ++c)
#pragma unroll
        for (int p = 0; p < kThreadP; ++p) stage[(column - pass + c) * kPitch + lane + p * kLanes] = sums[p][c];
    }
    __syncthreads();
    const int columns = static_cast<int>(min(static_cast<std::int64_t>(kPass), form.columns - begin));
    const std::int64_t first_channel = begin / classes;
    const int skew =
        static_cast<int>(first_channel * classes - begin);  // <= 0: the first channel may have begun in the pass before
    const std::int64_t first_row = (place.n * form.G + place.g) * form.out_channels + first_channel;
    for (int i = static_cast<int>(threadIdx.x); i < positions * stride; i += kThreads) {
      const int p = static_cast<int>(steps.by_stride.divide(static_cast<std::uint32_t>(i)));
      int a = i - p * stride, b = 0;
      if (form.out_gcd > 1) {
        const int residue = a;
        a = static_cast<int>(steps.by_gcd.divide(static_cast<std::uint32_t>(residue)));
        b = residue - a * static_cast<int>(form.out_gcd);
      }
      const std::int64_t t = t0 + static_cast<std::int64_t>(p) * stride + a * form.out_class_step + b;
      if (t < 0 || t >= form.out_length) continue;
      const bool has_tap = b == 0 && a < classes;
      T* to = out + first_row * form.out_length + t;
      std::int64_t channel = first_channel;
      // A position without a tap is written where its channel begins; a class where its column is.
      for (int c = skew; c < columns; c += classes, to += form.out_length, ++channel) {
        const int own = has_tap ? c + a : c;
        if (own < 0 || own >= columns) continue;
        *to = static_cast<T>(has_tap ? stage[own * kPitch + p] : without_taps<T, A>(form, place, channel, bias, epilogue));
      }
    }
  }
}

inline constexpr int kStages = 3;

/// Blocks an SM holds: 128 sums a thread leave it half the threads of 64.
constexpr int resident_blocks(int threads, std::size_t sum_words) { return (sum_words > 64 ? 256 : 512) / threads; }

/// The kernel: see the top of the file. Dynamic shared memory: the stages, or the store's stage if that is larger.
template <class T, int kTileP, int kTileC, int kThreadP, int kThreadC>
__global__ void __launch_bounds__(kTileP / kThreadP * (kTileC / kThreadC),
                                  resident_blocks(kTileP / kThreadP * (kTileC / kThreadC),
                                                  kThreadP* kThreadC * sizeof(typename AccumulatorOf<T>::type) / 4))
    tap_gemm_kernel(const __grid_constant__ TapGemm form, const __grid_constant__ Steps steps,
                    const __grid_constant__ Epilogue epilogue, const T* __restrict__ source,
                    const typename AccumulatorOf<T>::type* __restrict__ packed, const T* __restrict__ bias,
                    T* __restrict__ out) {
  using A = typename AccumulatorOf<T>::type;
  constexpr int kLanes = kTileP / kThreadP;
  constexpr int kThreads = kLanes * (kTileC / kThreadC);
  constexpr int kPass = kTileC < 16 ? kTileC : 16;
  static_assert(kLanes % 32 == 0, "a warp shares its columns");
  static_assert(kPass % kThreadC == 0, "a pass holds whole threads' columns");
  extern __shared__ __align__(16) unsigned char memory[];
  A* const stages = reinterpret_cast<A*>(memory);  // kStages x (source_words + weight_words)
  const int stage_words = steps.source_words + steps.weight_words;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int column = static_cast<int>(threadIdx.x) / kLanes * kThreadC;
  const int count = steps.row_steps * steps.plane_steps * steps.tap_steps;

  for (std::int64_t block = blockIdx.x; block < steps.blocks; block += gridDim.x) {
    const Place place = place_of<kTileP, kTileC>(block, form, steps);
    unsigned masked = 0;
    if (form.full_classes < form.classes) {
#pragma unroll
      for (int c = 0; c < kThreadC; ++c) {
        const auto index = static_cast<std::uint32_t>(place.column + column + c);
        const std::uint32_t a = index - steps.by_classes.divide(index) * steps.by_classes.divisor;
        masked |= (form.lacks_first_tap(a) ? 1U : 0U) << c;
      }
    }
    A sums[kThreadP][kThreadC] = {};
    Cursor ahead, now;
    const A* weights = packed + (place.g * steps.column_tiles + place.column / kTileC) * count * steps.weight_words;
    int fetch_stage = 0, fetched = 0;
    auto fetch = [&] {
      if (fetched < count) {
        A* to = stages + fetch_stage * stage_words;
        load_source<T, A, kThreads>(form, steps, place, ahead, source, to);
        load_weights<A, kThreads>(steps, weights, to + steps.source_words);
        weights += steps.weight_words;
        ahead.advance(steps);
        ++fetched;
      }
      fetch_stage = fetch_stage + 1 == kStages ? 0 : fetch_stage + 1;
      __pipeline_commit();
    };
    for (int i = 0; i < kStages - 1; ++i) fetch();
    int stage = 0;
    for (int step = 0; step < count; ++step) {
      __pipeline_wait_prior(kStages - 2);
      __syncthreads();  // this step's stage is filled, and everybody has left the stage that is filled next
      fetch();
      const A* from = stages + stage * stage_words;
      multiply<A, kTileP, kTileC, kThreadP, kThreadC>(form, steps, now, from, from + steps.source_words, lane, column, masked,
                                                      sums);
      now.advance(steps);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    finish(form, steps, place, bias, epilogue, column, sums);
    if (form.out_stride == 1) {
      store_rows<T, A, kTileP, kThreadP, kThreadC>(form, place, out, lane, column, sums);
    } else if (is_run(form, 2, kThreadC)) {
      store_runs<2, T, A, kTileP, kThreadP, kThreadC>(form, place, bias, epilogue, out, lane, column, sums);
    } else if (is_run(form, 4, kThreadC)) {
      store_runs<4, T, A, kTileP, kThreadP, kThreadC>(form, place, bias, epilogue, out, lane, column, sums);
    } else {
      store_phases<T, A, kTileP, kTileC, kThreadP, kThreadC, kThreads, kPass>(form, steps, place, bias, epilogue, out, stages,
                                                                              lane, column, sums);
    }
    __syncthreads();
  }
}

}  // namespace polyphase::cuda::direct
