#pragma once
// The forward/dgrad kernel on FFMA for f32 and classes of equal taps. Read the general kernel in kernel.cuh first.
//
// The product and the blocks are the same, but a thread's positions are neighbours in groups of four: position = 128*group +
// 4*lane + {0..3}. Four taps of a row use (3*step + 4) neighbouring words, which are read once as quads into registers; the
// general kernel reads one word per position and tap. With step = 1 a row of four taps costs a thread 4 quads of source and 8
// of weights for 256 FFMAs: 12 reads, against 40 in the general kernel with the same 8 x 8 sums. Source rows are copied 16
// bytes at a time if all of them are 16-byte aligned; tiles are then shifted so that their windows begin at a quad. A warp
// stores its sums through shared memory, so that it writes neighbouring words and the code of the stores stays small.

#include "cuda/conv/direct/kernel.cuh"

namespace polyphase::cuda::direct {

/// The 16-byte copies of one warp: quads lane, lane + 32, ... of a window row, zeros outside [begin, end).
struct QuadRange {
  int begin, end;  // quads of the window inside the tensor's row
};

/// The quads of the window that begins at element `e0` of a row of `length`; both are multiples of 4.
__device__ __forceinline__ QuadRange quads_inside(std::int64_t e0, std::int64_t length, int quads) {
  const std::int64_t whole = quads;
  const std::int64_t begin = e0 < 0 ? -e0 / 4 : 0, end = (length - e0) / 4;
  return {static_cast<int>(min(begin, whole)), static_cast<int>(max(min(end, whole), std::int64_t{0}))};
}

/// Fills source[row][window] of one step with 16-byte copies, one row per warp. `from` is the window's first word in the first
/// row.
template <int kGroups, int kWarps>
__device__ __forceinline__ void copy_quads(const float* __restrict__ any, const float* __restrict__ from, std::int64_t length,
                                           int rows, int window, const QuadRange& range, float* source) {
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
  const int quads = window / 4;
  from += warp * length + 4 * lane;
  source += warp * window + 4 * lane;
  if (range.begin == 0 && range.end == quads) {  // the tile's own positions, then the halo
#pragma unroll 1
    for (int r = warp; r < rows; r += kWarps, from += kWarps * length, source += kWarps * window) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) __pipeline_memcpy_async(source + 128 * g, from + 128 * g, 16);
#pragma unroll 1
      for (int q = 32 * kGroups; q < quads - lane; q += 32) __pipeline_memcpy_async(source + 4 * q, from + 4 * q, 16);
    }
    return;
  }
#pragma unroll 1
  for (int r = warp; r < rows; r += kWarps, from += kWarps * length, source += kWarps * window) {
#pragma unroll 1
    for (int q = 0; q < quads - lane; q += 32) {
      const bool inside = q + lane >= range.begin && q + lane < range.end;
      __pipeline_memcpy_async(source + 4 * q, inside ? from + 4 * q : any, 16, inside ? 0 : 16);
    }
  }
}

/// Where a tile of joined samples begins, and the address of an element of its window.
struct JoinedRows {
  const float* first;           // row 0 of the step's rows in the first sample
  std::int64_t sample, length;  // words from sample to sample; row length
  int begin, pitch, samples;    // the tile's first position within its sample; samples that remain
  std::int64_t first_element;   // element of position 0 of a sample

  /// Word `plane` of window position u in the first row; null outside the tensor.
  __device__ __forceinline__ const float* at(const TapGemm& gemm, const Steps& steps, int u, int plane) const {
    const auto position = static_cast<std::uint32_t>(begin + u);
    const int m = static_cast<int>(steps.by_row_pitch.divide(position));
    const std::int64_t e =
        first_element + gemm.source_stride * (static_cast<int>(position) - m * pitch) + plane * gemm.source_plane_step;
    return m < samples && e >= 0 && e < length ? first + m * sample + e : nullptr;
  }
};

/// copy_quads for a tile that spans samples.
template <int kWarps>
__device__ __forceinline__ void copy_joined_quads(const TapGemm& gemm, const Steps& steps, const JoinedRows& joined,
                                                  const float* __restrict__ any, int rows, float* source) {
  const int warp = static_cast<int>(threadIdx.x) >> 5, lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll 1
  for (int u = 4 * lane; u < steps.window; u += 128) {
    const float* from = joined.at(gemm, steps, u, 0);
    const bool inside = from != nullptr;
    const std::int64_t advance = inside ? kWarps * joined.length : 0;
    from = inside ? from + warp * joined.length : any;
    float* to = source + warp * steps.window + u;
#pragma unroll 2
    for (int r = warp; r < rows; r += kWarps, from += advance, to += kWarps * steps.window)
      __pipeline_memcpy_async(to, from, 16, inside ? 0 : 16);
  }
}

/// load_source for a tile that spans samples: source[row][plane][window] word by word.
template <int kThreads>
__device__ __forceinline__ void copy_joined_words(const TapGemm& gemm, const Steps& steps, const JoinedRows& joined,
                                                  const float* __restrict__ any, int rows, float* source) {
  const int pitch = steps.planes * steps.window;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < pitch; i += kThreads) {
    const int u = static_cast<int>(steps.by_planes.divide(static_cast<std::uint32_t>(i))), plane = i - u * steps.planes;
    const float* from = joined.at(gemm, steps, u, plane);
    const bool inside = from != nullptr;
    const std::int64_t advance = inside ? joined.length : 0;
    if (!inside) from = any;
    float* to = source + plane * steps.window + u;
#pragma unroll 4
    for (int r = 0; r < rows; ++r, to += pitch, from += advance) __pipeline_memcpy_async(to, from, 4, inside ? 0 : 4);
  }
}

/// sums += kTaps taps, kStep apart, of `rows` rows: x[row][pitch] from this lane's first quad, w[row][kTaps][kTileC] from this
/// thread's columns.
template <int kTaps, int kStep, int kTileC, int kThreadP, int kThreadC>
__device__ __forceinline__ void multiply_piece(const float* x, const float* w, int rows, int pitch,
                                               float (&sums)[kThreadP][kThreadC]) {
  constexpr int kGroups = kThreadP / 4;
  constexpr int kWords = (4 + (kTaps - 1) * kStep + 3) / 4 * 4;
#pragma unroll 2
  for (int r = 0; r < rows; ++r, x += pitch, w += kTaps * kTileC) {
    alignas(16) float xs[kGroups][kWords];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) load_vector(x + 128 * g, xs[g]);
#pragma unroll
    for (int tap = 0; tap < kTaps; ++tap) {
      alignas(16) float ws[kThreadC];
      load_vector(w + tap * kTileC, ws);
#pragma unroll
      for (int c = 0; c < kThreadC; ++c) {
#pragma unroll
        for (int p = 0; p < kThreadP; ++p) sums[p][c] += xs[p / 4][p % 4 + tap * kStep] * ws[c];
      }
    }
  }
}

/// The sums of one step whose taps are kStep apart: pieces of four taps, then the rest. A piece of four taps has `piece_words`
/// of weights.
template <int kStep, int kTileC, int kThreadP, int kThreadC>
__device__ __forceinline__ void multiply_taps(const float* x, const float* w, int taps, int rows, int pitch, int piece_words,
                                              float (&sums)[kThreadP][kThreadC]) {
  for (; taps >= kPieceTaps; taps -= kPieceTaps, x += kPieceTaps * kStep, w += piece_words) {
    multiply_piece<kPieceTaps, kStep, kTileC>(x, w, rows, pitch, sums);
  }
  if (taps == 3) multiply_piece<3, kStep, kTileC>(x, w, rows, pitch, sums);
  if (taps == 2) multiply_piece<2, kStep, kTileC>(x, w, rows, pitch, sums);
  if (taps == 1) multiply_piece<1, 1, kTileC>(x, w, rows, pitch, sums);
}

/// What the threads of a block share.
struct WindowBlock {
  Place place;
  const float* rows;  // the window's first word in row 0, if copied in quads
  JoinedRows joined;
  int samples;           // that the tile spans
  const float* weights;  // of step 0
  float* out;            // for this slice
  QuadRange quads;
  int first_step, end_step;
};

template <int kTileP, int kTileC>
__device__ __forceinline__ WindowBlock window_block(const TapGemm& gemm, const Steps& steps, std::int64_t block,
                                                    const float* source, const float* packed, float* out) {
  const std::int64_t slice = steps.slices > 1 ? block / steps.blocks : 0;
  const Place place = place_of<kTileP, kTileC>(block - slice * steps.blocks, gemm, steps);
  const std::int64_t e0 = place.position + gemm.source_origin;
  const std::int64_t tile = place.g * steps.column_tiles + place.column / kTileC;
  const int first = static_cast<int>(slice) * steps.slice_steps;
  const float* rows = source + (place.n * gemm.G + place.g) * gemm.rows * gemm.source_length;
  const int begin = static_cast<int>(place.position - gemm.position_begin),
            left = static_cast<int>(min(gemm.N - place.n, std::int64_t{1} << 20));
  const int samples = steps.row_pitch > 0 ? min(left, (begin + kTileP - 1) / steps.row_pitch + 1) : 1;
  return {place,
          rows + e0,
          {rows, gemm.G * gemm.rows * gemm.source_length, gemm.source_length, begin, steps.row_pitch, left,
           gemm.source_stride * gemm.position_begin + gemm.source_origin},
          samples,
          packed + tile * steps.row_steps * steps.weight_words,
          out + slice * gemm.N * gemm.G * gemm.out_channels * gemm.out_length,
          quads_inside(e0, gemm.source_length, steps.window / 4),
          first,
          min(first + steps.slice_steps, steps.row_steps)};
}

/// See the top of the file. A warp computes 128*kGroups positions of kThreadC columns. `by_quads`: rows begin at multiples of
/// 16 bytes and tiles at multiples of 4 elements. `stage_count` is 2 or 3. With slices, `out` holds one array of partial sums
/// per slice.
template <int kGroups, int kThreadC, int kWarps>
__global__ void __launch_bounds__(32 * kWarps, 16 / kWarps)
    window_kernel(const __grid_constant__ TapGemm gemm, const __grid_constant__ Steps steps,
                  const __grid_constant__ Epilogue epilogue, bool by_quads, int stage_count, const float* __restrict__ source,
                  const float* __restrict__ packed, const float* __restrict__ bias, float* __restrict__ out) {
  constexpr int kTileP = 128 * kGroups, kTileC = kThreadC * kWarps, kThreadP = 4 * kGroups, kThreads = 32 * kWarps;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ WindowBlock at;                               // in shared memory because the sums need the registers
  float* const stages = reinterpret_cast<float*>(memory);  // stage_count x (source_words + weight_words)
  const int stage_words = steps.source_words + steps.weight_words;
  const int last_stage = (stage_count - 1) * stage_words;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int column = static_cast<int>(threadIdx.x) / 32 * kThreadC;
  auto rows_of = [&](int step) { return step + 1 < steps.row_steps ? steps.rows : steps.last_rows; };

  for (std::int64_t block = blockIdx.x; block < steps.blocks * steps.slices; block += gridDim.x) {
    if (threadIdx.x == 0) at = window_block<kTileP, kTileC>(gemm, steps, block, source, packed, out);
    __syncthreads();
    auto fetch = [&](int step, float* to) {
      if (step < at.end_step) {
        if (at.samples > 1) {
          JoinedRows joined = at.joined;
          joined.first += step * (steps.rows * gemm.source_length);
          if (by_quads) {
            copy_joined_quads<kWarps>(gemm, steps, joined, source, rows_of(step), to);
          } else {
            copy_joined_words<kThreads>(gemm, steps, joined, source, rows_of(step), to);
          }
        } else if (by_quads) {
          copy_quads<kGroups, kWarps>(source, at.rows + step * (steps.rows * gemm.source_length), gemm.source_length,
                                      rows_of(step), steps.window, at.quads, to);
        } else {
          Cursor cursor;
          cursor.row = step;
          load_source<float, float, kThreads>(gemm, steps, at.place, cursor, source, to);
        }
        load_weights<float, kThreads>(steps, at.weights + std::int64_t{step} * steps.weight_words, to + steps.source_words);
      }
      __pipeline_commit();
    };
    if (epilogue.has_aux()) prefetch_with_aux(gemm, steps, at.place, kTileP, kTileC, epilogue, at.out, at.samples);
    float sums[kThreadP][kThreadC] = {};
    for (int i = 0; i + 1 < stage_count; ++i) fetch(at.first_step + i, stages + i * stage_words);
    int stage = 0;  // in words
    for (int step = at.first_step; step < at.end_step; ++step) {
      stage_count == 2 ? __pipeline_wait_prior(0) : __pipeline_wait_prior(1);
      __syncthreads();  // this step's stage is filled, and no thread still reads the stage to fill next
      fetch(step + stage_count - 1, stages + (stage == 0 ? last_stage : stage - stage_words));
      const float* x = stages + stage + 4 * lane;
      const float* w = stages + stage + steps.source_words + column;
      const int rows = steps.planes * rows_of(step);
      const int piece_words = steps.piece_taps * steps.rows * steps.planes * kTileC;
      const int apart = static_cast<int>(gemm.tap_step);
      if (steps.piece_taps == 1) {
        for (int tap = 0; tap < steps.taps; ++tap, x += apart, w += piece_words)
          multiply_piece<1, 1, kTileC>(x, w, rows, steps.window, sums);
      } else if (apart == 3) {
        multiply_taps<3, kTileC>(x, w, steps.taps, rows, steps.window, piece_words, sums);
      } else if (apart == 2) {
        multiply_taps<2, kTileC>(x, w, steps.taps, rows, steps.window, piece_words, sums);
      } else {
        multiply_taps<1, kTileC>(x, w, steps.taps, rows, steps.window, piece_words, sums);
      }
      stage = stage == last_stage ? 0 : stage + stage_words;
    }
    __syncthreads();  // no thread still reads the stages
    const bool is_active = activate_early<float>(gemm, steps, at.place, column, bias, epilogue, sums);
    const WarpTile<float> own{lane, 0, column, stages + column * sum_pitch(kTileP)};
#pragma unroll
    for (int c = 0; c < kThreadC; ++c) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float4 quad = {sums[4 * g][c], sums[4 * g + 1][c], sums[4 * g + 2][c], sums[4 * g + 3][c]};
        *reinterpret_cast<float4*>(own.sums + c * sum_pitch(kTileP) + 128 * g + 4 * lane) = quad;
      }
    }
    store_warp<float, float, kTileP, kThreadC>(gemm, steps, at.place, bias, epilogue, is_active, at.out, own, at.samples);
    __syncthreads();
  }
}

/// out[i] = epilogue(sum over slices of partial[slice][i], in order, + bias[channel of i]); fewer than 2^31 elements.
template <class T>
__global__ void add_slices_kernel(const __grid_constant__ FastDivide by_length, const __grid_constant__ FastDivide by_channels,
                                  const __grid_constant__ Epilogue epilogue, int slices, int elements,
                                  const T* __restrict__ partial, const T* __restrict__ bias, T* __restrict__ out) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < elements; i += stride) {
    T sum = partial[i];
    for (int slice = 1; slice < slices; ++slice) sum += partial[static_cast<std::int64_t>(slice) * elements + i];
    const std::uint32_t row = by_length.divide(static_cast<std::uint32_t>(i));
    const std::uint32_t channel = row - by_channels.divide(row) * by_channels.divisor;
    if (bias != nullptr) sum += bias[channel];
    out[i] = epilogue.finish<T>(sum, channel, out + i);
  }
}

}  // namespace polyphase::cuda::direct
