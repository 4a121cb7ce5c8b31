// The recurrent part of an LSTM as one kernel that stays on the GPU for all steps.
//
// A block computes up to 8 units. Their weights, four rows of H for each unit, stay in registers: a thread has two columns of
// every row. In a step a thread multiplies its two elements of h, a warp adds its threads' products, and four threads finish a
// unit: they add the warps' sums to the gates' inputs, one gate each, and exchange the gates.
//
// All blocks need all of h. A block publishes an element as one 64-bit word, which holds the number of its step too. So a
// reader knows from the word itself that it is the element of the step before, and there is no barrier between blocks. Two rows
// of words take turns: a block writes h of step t + 2 after it has read all of step t + 1, and every block has published its
// part of that after it read step t. The blocks wait for each other, so the launch is cooperative: all of them run at the same
// time.

#include "cuda/linear/lstm.hpp"

#include <algorithm>
#include <cstdint>

#include "cuda/memory/allocator.hpp"
#include "cuda/ptx/relaxed.cuh"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kMostUnits = 8;      // of a block
constexpr int kColumns = 2;        // of a thread
constexpr int kMostThreads = 512;  // of a block
constexpr int kMostSamples = 32;   // of a launch
constexpr int kGates = 4;

/// What a launch computes; the tensors' elements as in Backend::lstm.
struct Recurrence {
  float* gates;                   // (T, N, 4H)
  const float* weight;            // (4H, H)
  float *hidden, *cells;          // (T + 1, N, H)
  unsigned long long* published;  // [2][samples][pitch]: step << 32 | the bits of h; zeros at first
  std::int64_t steps, N, first;   // samples `first` to `first` + `samples` of N
  int H, samples, pitch;
};

/// Elements k and k + 1 of a sample's h before `step`; zero from H on.
__device__ __forceinline__ void read_first(const Recurrence& r, int sample, int k, float (&h)[kColumns]) {
  const float* const row = r.hidden + (r.first + sample) * r.H;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) h[j] = k + j < r.H ? row[k + j] : 0.0F;
}

/// The same for a later step, for kCount samples from `sample` on, as soon as they are published.
template <int kCount>
__device__ __forceinline__ void read_published(const Recurrence& r, std::int64_t step, int sample, int k,
                                               float (&h)[kCount][kColumns]) {
  const auto tag = static_cast<unsigned>(step);
  const unsigned long long* const row =
      r.published + ((step & 1) * r.samples + sample) * static_cast<std::int64_t>(r.pitch) + k;
  const bool has_second = k + 1 < r.H;  // not if H is odd
  bool waits = k < r.H;
  unsigned long long words[kCount][kColumns] = {};
  while (waits) {
    waits = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (sample + i >= r.samples) continue;
      ptx::load_relaxed(row + i * static_cast<std::int64_t>(r.pitch), words[i]);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (sample + i >= r.samples) continue;
      waits |= static_cast<unsigned>(words[i][0] >> 32) != tag;
      waits |= has_second && static_cast<unsigned>(words[i][1] >> 32) != tag;
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) h[i][j] = __uint_as_float(static_cast<unsigned>(words[i][j]));
}

/// sums[0] = the sum over the warp's lanes of row lane / (32 / kRows) of the first kRows: lanes kOffset apart exchange halves.
template <int kRows, int kOffset = 16, int kSize>
__device__ __forceinline__ void add_lanes(float (&sums)[kSize], int lane) {
  if constexpr (kRows > 1) {
    constexpr int kHalf = kRows / 2;
    const bool upper = (lane & kOffset) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? sums[i + kHalf] : sums[i], given = upper ? sums[i] : sums[i + kHalf];
      sums[i] = kept + __shfl_xor_sync(0xFFFFFFFF, given, kOffset);
    }
    add_lanes<kHalf, kOffset / 2>(sums, lane);
  } else if constexpr (kOffset > 0) {
    sums[0] += __shfl_xor_sync(0xFFFFFFFF, sums[0], kOffset);
    add_lanes<1, kOffset / 2>(sums, lane);
  }
}

__device__ __forceinline__ float activated(float x, bool is_candidate) {
  return is_candidate ? tanhf(x) : 1.0F / (1.0F + expf(-x));
}

/// Row 4u + gate of a block is that gate of its unit u. Shared memory: sums [2][warps][samples][rows], cells [samples][units].
template <int kUnits>
__global__ void __launch_bounds__(kMostThreads) lstm_kernel(const __grid_constant__ Recurrence r) {
  constexpr int kRows = kGates * kUnits, kTogether = kUnits == kMostUnits ? 2 : 4;
  extern __shared__ float memory[];
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % 32, warp = thread / 32, warps = threads / 32;
  const int first_unit = static_cast<int>(blockIdx.x) * kUnits, k = kColumns * thread, H = r.H;
  const int sums_of_warp = r.samples * kRows, items = r.samples * kRows;
  float* const cell = memory + 2 * warps * sums_of_warp;

  float weights[kRows][kColumns];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const int unit = first_unit + row / kGates;
    const float* const from = r.weight + (static_cast<std::int64_t>(row % kGates) * H + unit) * H + k;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) weights[row][j] = unit < H && k + j < H ? from[j] : 0.0F;
  }
  // An item is a row of a sample. Its thread is the same in every step; that of gate 0 owns the unit's cell.
  for (int item = thread; item < items; item += threads) {
    const int sample = item / kRows, row = item % kRows, unit = first_unit + row / kGates;
    if (row % kGates == 0 && unit < H) cell[sample * kUnits + row / kGates] = r.cells[(r.first + sample) * H + unit];
  }

  for (std::int64_t step = 0; step < r.steps; ++step) {
    const auto gate_of = [&](int item) {
      const int sample = item / kRows, row = item % kRows;
      return r.gates + ((step * r.N + r.first + sample) * kGates + row % kGates) * H + first_unit + row / kGates;
    };
    const auto exists = [&](int item) { return item < items && first_unit + item % kRows / kGates < H; };
    const float first_input = exists(thread) ? *gate_of(thread) : 0.0F;  // before the wait for h
    float* const sums_of_step = memory + (step & 1) * warps * sums_of_warp;
    for (int sample = 0; sample < r.samples; sample += kTogether) {
      float h[kTogether][kColumns] = {};
      if (step == 0) {
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          if (sample + i < r.samples) read_first(r, sample + i, k, h[i]);
      } else {
        read_published<kTogether>(r, step, sample, k, h);
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (sample + i >= r.samples) continue;
        float sums[kRows];
#pragma unroll
        for (int row = 0; row < kRows; ++row) sums[row] = weights[row][0] * h[i][0] + weights[row][1] * h[i][1];
        add_lanes<kRows>(sums, lane);
        if (lane % (32 / kRows) == 0) sums_of_step[warp * sums_of_warp + (sample + i) * kRows + lane / (32 / kRows)] = sums[0];
      }
    }
    __syncthreads();
    for (int item = thread; item < items; item += threads) {
      const int sample = item / kRows, row = item % kRows, gate = row % kGates, unit = first_unit + row / kGates;
      float input = item == thread ? first_input : exists(item) ? *gate_of(item) : 0.0F;
      for (int w = 0; w < warps; ++w) input += sums_of_step[w * sums_of_warp + item];
      const float mine = activated(input, gate == 2);
      const unsigned quad = 0xFU << (lane & ~3);
      const float forget = __shfl_sync(quad, mine, (lane & ~3) + 1), candidate = __shfl_sync(quad, mine, (lane & ~3) + 2),
                  output = __shfl_sync(quad, mine, (lane & ~3) + 3);
      if (unit >= H) continue;
      if (gate == 0) {
        float& c = cell[sample * kUnits + row / kGates];
        c = forget * c + mine * candidate;
        const float h = output * tanhf(c);
        if (step + 1 < r.steps)
          ptx::store_relaxed(r.published + (((step + 1) & 1) * r.samples + sample) * static_cast<std::int64_t>(r.pitch) + unit,
                             static_cast<unsigned long long>(static_cast<unsigned>(step + 1)) << 32 | __float_as_uint(h));
        const std::int64_t place = ((step + 1) * r.N + r.first + sample) * H + unit;
        r.hidden[place] = h;
        r.cells[place] = c;
      }
      *gate_of(item) = mine;
    }
  }
}

template <int kUnits>
void launch(const Recurrence& recurrence, cudaStream_t stream) {
  const int threads = recurrence.H <= kColumns * kMostThreads / 2 ? kMostThreads / 2 : kMostThreads;
  const int rows = kGates * kUnits;
  const auto shared =
      sizeof(float) * static_cast<std::size_t>(recurrence.samples) * static_cast<std::size_t>(2 * threads / 32 * rows + kUnits);
  allow_shared_memory(lstm_kernel<kUnits>, static_cast<std::int64_t>(shared));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((recurrence.H + kUnits - 1) / kUnits));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = recurrence.steps > 1 ? 1 : 0;  // a single step waits for nothing
  CHECK_CUDA(cudaLaunchKernelEx(&config, lstm_kernel<kUnits>, recurrence));
  check_launch("lstm");
}

/// The fewest units of a block, a power of two, that give every unit of H a multiprocessor.
int units_of_block(std::int64_t H, int sm_count) {
  int units = 1;
  while (units < kMostUnits && units * sm_count < H) units *= 2;
  return units;
}

}  // namespace

bool lstm_fits(DType dtype, std::int64_t H, int device) {
  return dtype == DType::f32 && H <= std::min(kColumns * kMostThreads, kMostUnits * properties(device).sm_count);
}

void lstm(const Tensor& gates, const Tensor& weight, const Tensor& hidden, const Tensor& cells, cudaStream_t stream) {
  const int device = gates.device().index;
  const std::int64_t steps = gates.size(0), N = gates.size(1), H = weight.size(1);
  require<Error>(lstm_fits(gates.dtype(), H, device), "cuda: lstm: expected f32 and fewer units, got ", gates.dtype(),
                 " and H=", H);
  const int units = units_of_block(H, properties(device).sm_count);
  const int pitch = static_cast<int>(H + H % 2);
  for (std::int64_t first = 0; first < N; first += kMostSamples) {
    const int samples = static_cast<int>(std::min<std::int64_t>(kMostSamples, N - first));
    const std::size_t bytes = steps > 1 ? sizeof(unsigned long long) * 2 * static_cast<std::size_t>(samples * pitch) : 0;
    const Buffer published(bytes, device);
    if (bytes > 0) CHECK_CUDA(cudaMemsetAsync(published.as<void>(), 0, bytes, stream));
    const Recurrence recurrence{gates.data<float>(),
                                weight.data<float>(),
                                hidden.data<float>(),
                                cells.data<float>(),
                                published.as<unsigned long long>(),
                                steps,
                                N,
                                first,
                                static_cast<int>(H),
                                samples,
                                pitch};
    switch (units) {
      case 1:
        launch<1>(recurrence, stream);
        break;
      case 2:
        launch<2>(recurrence, stream);
        break;
      case 4:
        launch<4>(recurrence, stream);
        break;
      default:
        launch<8>(recurrence, stream);
    }
  }
}

}  // namespace polyphase::cuda
