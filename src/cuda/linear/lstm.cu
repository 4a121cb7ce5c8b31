// The recurrent part of one LSTM layer, or of two layers together, as one kernel that stays on the GPU for all steps.
//
// A warp computes one unit of a layer. Its weights, four rows of H, stay in registers: a lane has every 32nd group of four
// columns. In a step a block copies h of the step before to shared memory, each warp multiplies it by its rows, and four
// groups of eight lanes finish the unit: they add the gates' inputs, one gate each, and exchange the gates.
//
// All blocks need all of h. A warp publishes an element as one 64-bit word, which holds the number of its step too. So a
// reader knows from the word itself that it is the element of the step before, and there is no barrier between blocks. Two rows
// of words take turns: a block writes the words of step t + 2 after it has read all of step t + 1, and every block has
// published its part of that after it read step t. The blocks wait for each other, so the launch is cooperative: all of them
// run at the same time.
//
// With two layers the second one runs two steps behind the first one, in warps of the same blocks. A step of both exchanges its
// elements once. The second layer's input part of a step, weight_ih h, is computed one step earlier by warps of its own.

#include "cuda/linear/lstm.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "cuda/kernel/address.hpp"
#include "cuda/memory/allocator.hpp"
#include "cuda/ptx/acquire.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/relaxed.cuh"
#include "cuda/runtime/runtime.hpp"
#include "tensor/error.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kGates = 4;
constexpr int kSlots = 8;         // samples of a warp's lanes: lane 8*gate + slot finishes a gate of a sample
constexpr int kMostColumns = 32;  // of a lane
constexpr int kMostUnits = 8;     // of a block, of one layer alone
constexpr int kMostPairColumns = 16, kMostPairUnits = 4;  // where two layers fit in the registers
constexpr int kMostGroups = 2;                            // of samples that a warp computes one after another
constexpr int kMostSamples = 16;                          // of a launch
constexpr int kMostSamplesOfWords = 2;
constexpr int kDelay = 2;  // steps of the second layer behind the first one
constexpr int kReads = 4;  // pairs of words that a thread reads together

enum class Width { f32, f16, bf16 };  // of weights and biases

/// A layer's tensors, as in LstmSteps; h, c and the biases may be null.
struct Layer {
  float* gates;
  const void *weight, *input_bias, *hidden_bias;
  const float *h, *c;
  float *hidden, *cells;
};

/// What a launch computes.
struct Recurrence {
  Layer layers[2];
  const void* input_weight;      // of the second layer: (4H, H)
  Width width;                   // of the weights and biases
  unsigned long long* words;     // [2][layers][samples][pitch]: step << 32 | the bits of h; zeros at first. Null for one step
  unsigned* finished;            // [layers][H]: how many iterations a unit has finished; zeros at first. Instead of words
  std::int64_t steps, N, first;  // samples `first` to `first` + `samples` of N
  int H, samples, pitch;         // pitch: H, rounded up to an even number
};

/// The roles of warps: see lstm_kernel.
constexpr int roles_of(int layers) { return layers == 2 ? 3 : 1; }

/// Element `index` of a weight or bias.
__device__ __forceinline__ float element(const void* from, std::int64_t index, Width width) {
  if (width == Width::f32) return static_cast<const float*>(from)[index];
  if (width == Width::f16) return __half2float(static_cast<const __half*>(from)[index]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[index]);
}

/// The column of a lane's element j.
__device__ __forceinline__ int column_of(int j, int lane) { return j / 4 * 128 + lane * 4 + j % 4; }

/// A lane's columns of the four rows of `unit` in `from` (4H, H); zeros past H.
template <int kColumns>
__device__ __forceinline__ void load_rows(float (&rows)[kGates][kColumns], const void* from, int unit, int lane,
                                          const Recurrence& r) {
#pragma unroll
  for (int gate = 0; gate < kGates; ++gate)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int column = column_of(j, lane);
      const bool exists = unit < r.H && column < r.H;
      rows[gate][j] = exists ? element(from, (static_cast<std::int64_t>(gate) * r.H + unit) * r.H + column, r.width) : 0.0F;
    }
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

/// Lane 8*gate + slot: the product of the rows of that gate and the h of sample `slot` of the `count` from `h` on. With one
/// slot all lanes of a gate have it. The order of a sum is the same for every sample and every number of them.
template <int kColumns, int kTogether>
__device__ __forceinline__ float product(const float (&rows)[kGates][kColumns], const float* h, int count, int lane) {
  float sums[kGates * kTogether] = {};
#pragma unroll
  for (int j = 0; j < kColumns; j += 4)
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (kTogether > 1 && i >= count) continue;
      const float4 part = *reinterpret_cast<const float4*>(h + i * 32 * kColumns + column_of(j, lane));
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        float& sum = sums[gate * kTogether + i];
        sum = __fmaf_rn(rows[gate][j], part.x, sum);
        sum = __fmaf_rn(rows[gate][j + 1], part.y, sum);
        sum = __fmaf_rn(rows[gate][j + 2], part.z, sum);
        sum = __fmaf_rn(rows[gate][j + 3], part.w, sum);
      }
    }
  add_lanes<kGates * kTogether>(sums, lane);
  return sums[0];
}

__device__ __forceinline__ float activated(float x, bool is_candidate) {
  return is_candidate ? tanhf(x) : 1.0F / (1.0F + expf(-x));
}

/// The layers with a step before their step in `iteration`: from `begin` to before `end`.
struct Active {
  int begin, end;
};
template <int kLayers>
__device__ __forceinline__ Active active_layers(const Recurrence& r, std::int64_t iteration) {
  Active active{kLayers, 0};
#pragma unroll
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::int64_t step = iteration - layer * kDelay;
    if (step >= 1 && step <= r.steps) active = {min(active.begin, layer), layer + 1};
  }
  return active;
}

/// Copies the given h of a layer whose first step is in `iteration` to `to`, [layers][samples][width].
template <int kLayers>
__device__ __forceinline__ void copy_given(const Recurrence& r, std::int64_t iteration, float* to, int width) {
#pragma unroll
  for (int layer = 0; layer < kLayers; ++layer)
    if (iteration == layer * kDelay && r.layers[layer].h != nullptr)
      for (int i = static_cast<int>(threadIdx.x); i < r.samples * r.H; i += static_cast<int>(blockDim.x))
        to[(layer * r.samples + i / r.H) * width + i % r.H] = r.layers[layer].h[r.first * r.H + i];
}

/// Copies h of the active layers to `to` as soon as its words are there.
template <int kLayers>
__device__ __forceinline__ void copy_words(const Recurrence& r, std::int64_t iteration, float* to, int width) {
  const int threads = static_cast<int>(blockDim.x), pairs = r.pitch / 2;
  const Active active = active_layers<kLayers>(r, iteration);
  const int last = active.end * r.samples * pairs;
  const unsigned long long* const row = r.words + (iteration & 1) * static_cast<std::int64_t>(kLayers * r.samples) * r.pitch;
  const auto tag = static_cast<unsigned>(iteration);
  for (int first = active.begin * r.samples * pairs + static_cast<int>(threadIdx.x); first < last; first += kReads * threads) {
    int places[kReads];       // in `to`; before the wait, because they take two divisions
    bool has_second[kReads];  // not the last one if H is odd
#pragma unroll
    for (int i = 0; i < kReads; ++i) {
      const int at = first + i * threads, column = at % pairs * 2;
      places[i] = at / pairs * width + column;
      has_second[i] = column + 1 < r.H;
    }
    unsigned long long words[kReads][2];
    bool waits = true;
    while (waits) {
      waits = false;
#pragma unroll
      for (int i = 0; i < kReads; ++i)
        if (first + i * threads < last) ptx::load_relaxed(row + 2 * (first + i * threads), words[i]);
#pragma unroll
      for (int i = 0; i < kReads; ++i) {
        if (first + i * threads >= last) continue;
        waits |= static_cast<unsigned>(words[i][0] >> 32) != tag;
        waits |= has_second[i] && static_cast<unsigned>(words[i][1] >> 32) != tag;
      }
    }
#pragma unroll
    for (int i = 0; i < kReads; ++i)
      if (first + i * threads < last)
        *reinterpret_cast<float2*>(to + places[i]) = make_float2(__uint_as_float(static_cast<unsigned>(words[i][0])),
                                                                 __uint_as_float(static_cast<unsigned>(words[i][1])));
  }
}

/// Makes h of a unit after its step known to all blocks, for their `iteration`.
template <int kLayers>
__device__ __forceinline__ void publish(const Recurrence& r, std::int64_t iteration, int layer, int sample, int unit, float h) {
  const std::int64_t row = ((iteration & 1) * kLayers + layer) * r.samples + sample;
  ptx::store_relaxed(r.words + row * r.pitch + unit,
                     static_cast<unsigned long long>(static_cast<unsigned>(iteration)) << 32 | __float_as_uint(h));
}

/// Waits until all units of the active layers have finished the step before, and copies their h from `hidden` to `to`. The
/// caller waits for the copies.
template <int kLayers>
__device__ __forceinline__ void copy_finished(const Recurrence& r, std::int64_t iteration, float* to, int width) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int threads = static_cast<int>(blockDim.x);
  const Active active = active_layers<kLayers>(r, iteration);
  for (int unit = active.begin * r.H + static_cast<int>(threadIdx.x); unit < active.end * r.H; unit += threads)
    while (static_cast<int>(ptx::load_acquire(r.finished + unit) - static_cast<unsigned>(iteration)) < 0) {
    }
  __syncthreads();
  for (int line = active.begin * r.samples + warp; line < active.end * r.samples; line += threads / 32) {
    const int layer = line / r.samples;
    const std::int64_t step = iteration - layer * kDelay - 1;
    const float* const from = r.layers[layer].hidden + (step * r.N + r.first + line % r.samples) * r.H;
    const auto to_row = static_cast<std::uint32_t>(__cvta_generic_to_shared(to + line * width));
    if (r.H % 4 == 0) {
      for (int k = 4 * lane; k < r.H; k += 128) ptx::copy_vector(to_row + 4 * static_cast<std::uint32_t>(k), from + k);
    } else {
      for (int k = lane; k < r.H; k += 32) ptx::copy_word(to_row + 4 * static_cast<std::uint32_t>(k), from + k);
    }
  }
}

/// A block has as many warps as units for each of the roles: the units of a layer, and of two layers the input part of the
/// second one. Shared memory: h [2][layers][samples][width], cells [groups of samples][warps][lanes], input parts [2][groups of
/// samples][units][lanes].
template <int kColumns, int kLayers, int kTogether>
__global__ void __launch_bounds__(32 * (kLayers == 2 ? 3 * kMostPairUnits : kMostUnits))
    lstm_kernel(const __grid_constant__ Recurrence r) {
  constexpr int kWidth = 32 * kColumns;
  extern __shared__ float lstm_memory[];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, gate = lane / kSlots;
  const int warps = static_cast<int>(blockDim.x) / 32, units = warps / roles_of(kLayers), role = warp / units, H = r.H;
  const bool is_input = role == kLayers && kLayers > 1;  // computes the input parts of the last layer
  const int which = is_input ? kLayers - 1 : role, source = is_input ? kLayers - 2 : role;  // the layer, and whose h it reads
  const int unit = static_cast<int>(blockIdx.x) * units + warp % units;
  const int slot = kTogether > 1 ? lane % kSlots : 0;  // a lane's sample in a group of kTogether
  const int groups = (r.samples + kTogether - 1) / kTogether, size = kLayers * r.samples * kWidth;
  float* const cells = lstm_memory + 2 * size + warp * 32 + lane;
  float* const inputs = lstm_memory + 2 * size + groups * warps * 32 + warp % units * 32 + lane;
  const auto input_of = [&](std::int64_t step, int group) -> float& {
    return inputs[((step & 1) * groups + group) * units * 32];
  };
  const Layer& layer = r.layers[which];

  float rows[kGates][kColumns];
  load_rows(rows, is_input ? r.input_weight : layer.weight, unit, lane, r);
  float bias = 0.0F;
  if (unit < H) {
    if (layer.input_bias != nullptr) bias = element(layer.input_bias, gate * H + unit, r.width);
    if (layer.hidden_bias != nullptr) bias += element(layer.hidden_bias, gate * H + unit, r.width);
  }
  for (int i = thread; i < 2 * size; i += warps * 32) lstm_memory[i] = 0.0F;
  for (int group = 0; group < groups; ++group) {
    const int sample = group * kTogether + slot;
    const bool given = layer.c != nullptr && unit < H && sample < r.samples;
    cells[group * warps * 32] = given ? layer.c[(r.first + sample) * H + unit] : 0.0F;
  }
  __syncthreads();

  const auto place_of = [&](std::int64_t step, int sample) { return step * r.N + r.first + sample; };
  const std::int64_t iterations = r.steps + (kLayers - 1) * kDelay;
  for (std::int64_t iteration = 0; iteration < iterations; ++iteration) {
    float* const h = lstm_memory + (iteration & 1) * size;
    // h of the layer below is that of the second layer's next step.
    const std::int64_t step = iteration - which * kDelay + (is_input ? 1 : 0);
    const bool computes = unit < H && step >= 0 && step < r.steps;
    float given[kMostGroups] = {};  // of the first layer: its input, before the wait for h
#pragma unroll
    for (int group = 0; group < kMostGroups; ++group) {
      const int sample = group * kTogether + slot;
      if (computes && role == 0 && sample < r.samples)
        given[group] = layer.gates[(place_of(step, sample) * kGates + gate) * H + unit] + bias;
    }
    copy_given<kLayers>(r, iteration, h, kWidth);
    if constexpr (kTogether == 1) {
      copy_words<kLayers>(r, iteration, h, kWidth);
    } else {
      copy_finished<kLayers>(r, iteration, h, kWidth);
      ptx::copy_commit();
      ptx::copy_wait<0>();
    }
    __syncthreads();
    if (!computes) continue;
#pragma unroll
    for (int group = 0; group < kMostGroups; ++group) {
      const int first = group * kTogether, count = min(kTogether, r.samples - first), sample = first + slot;
      if (count <= 0) break;
      const float sum = product<kColumns, kTogether>(rows, h + (source * r.samples + first) * kWidth, count, lane);
      if (is_input) {
        input_of(step, group) = bias + sum;
        continue;
      }
      const float mine = activated((role == 0 ? given[group] : input_of(step, group)) + sum, gate == 2);
      const float forget = __shfl_sync(0xFFFFFFFF, mine, kSlots + lane % kSlots);
      const float candidate = __shfl_sync(0xFFFFFFFF, mine, 2 * kSlots + lane % kSlots);
      const float output = __shfl_sync(0xFFFFFFFF, mine, 3 * kSlots + lane % kSlots);
      if (lane % kSlots >= count) continue;
      if (gate == 0) {
        float& c = cells[group * warps * 32];
        c = forget * c + mine * candidate;
        const float after = output * tanhf(c);
        if (kTogether == 1 && iteration + 1 < iterations) publish<kLayers>(r, iteration + 1, which, sample, unit, after);
        layer.hidden[place_of(step, sample) * H + unit] = after;
        layer.cells[place_of(step, sample) * H + unit] = c;
      }
      layer.gates[(place_of(step, sample) * kGates + gate) * H + unit] = mine;
    }
    if (kTogether > 1 && !is_input && iteration + 1 < iterations) {
      __syncwarp();
      if (lane == 0) ptx::store_release(r.finished + which * H + unit, static_cast<unsigned>(iteration + 1));
    }
  }
}

template <int kColumns, int kLayers, int kTogether>
void launch(const Recurrence& recurrence, int units, cudaStream_t stream) {
  const auto kernel = lstm_kernel<kColumns, kLayers, kTogether>;
  const int threads = 32 * units * roles_of(kLayers), groups = (recurrence.samples + kTogether - 1) / kTogether;
  const auto shared = static_cast<std::int64_t>(sizeof(float)) *
                      (2 * kLayers * recurrence.samples * 32 * kColumns + groups * (threads + 2 * 32 * units));
  allow_shared_memory(kernel, shared);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((recurrence.H + units - 1) / units));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs =
      recurrence.words != nullptr || recurrence.finished != nullptr ? 1 : 0;  // a single step of one layer waits for nothing
  CHECK_CUDA(cudaLaunchKernelEx(&config, kernel, recurrence));
  check_launch("lstm");
}

template <int kColumns, int kLayers>
void launch_samples(const Recurrence& recurrence, int units, cudaStream_t stream) {
  recurrence.samples <= kMostSamplesOfWords ? launch<kColumns, kLayers, 1>(recurrence, units, stream)
                                            : launch<kColumns, kLayers, kSlots>(recurrence, units, stream);
}

template <int kLayers>
void launch_columns(const Recurrence& recurrence, int units, cudaStream_t stream) {
  if (recurrence.H <= 8 * 32) return launch_samples<8, kLayers>(recurrence, units, stream);
  if (recurrence.H <= 16 * 32) return launch_samples<16, kLayers>(recurrence, units, stream);
  if constexpr (kLayers == 1) launch_samples<kMostColumns, kLayers>(recurrence, units, stream);
}

/// The fewest units of a block for which every block has a multiprocessor.
int units_of_block(std::int64_t H, int device) {
  const int sm_count = properties(device).sm_count;
  return static_cast<int>((H + sm_count - 1) / sm_count);
}

Width width_of(DType dtype) { return dtype == DType::f16 ? Width::f16 : dtype == DType::bf16 ? Width::bf16 : Width::f32; }

template <class T>
T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

Layer layer_of(const LstmSteps& steps) {
  const auto bytes = [](const Tensor& tensor) { return address_or_null<const void>(tensor); };
  return {steps.gates.data<float>(),    bytes(steps.weight),          bytes(steps.input_bias),    bytes(steps.hidden_bias),
          data_or_null<float>(steps.h), data_or_null<float>(steps.c), steps.hidden.data<float>(), steps.cells.data<float>()};
}

template <int kLayers>
void run(Recurrence recurrence, int device, cudaStream_t stream) {
  const int units = units_of_block(recurrence.H, device);
  const std::int64_t N = recurrence.N;
  for (std::int64_t first = 0; first < N; first += kMostSamples) {
    recurrence.first = first;
    recurrence.samples = static_cast<int>(std::min<std::int64_t>(kMostSamples, N - first));
    const bool has_words = recurrence.samples <= kMostSamplesOfWords, waits = kLayers > 1 || recurrence.steps > 1;
    const auto H = static_cast<std::size_t>(recurrence.H), pitch = static_cast<std::size_t>(recurrence.pitch);
    const std::size_t bytes =
        has_words ? sizeof(unsigned long long) * 2 * kLayers * static_cast<std::size_t>(recurrence.samples) * pitch
                  : sizeof(unsigned) * kLayers * H;
    const Buffer memory(waits ? bytes : 0, device);
    if (waits) CHECK_CUDA(cudaMemsetAsync(memory.as<void>(), 0, bytes, stream));
    recurrence.words = waits && has_words ? memory.as<unsigned long long>() : nullptr;
    recurrence.finished = waits && !has_words ? memory.as<unsigned>() : nullptr;
    launch_columns<kLayers>(recurrence, units, stream);
  }
}

Recurrence recurrence_of(const LstmSteps& first) {
  Recurrence recurrence{};
  recurrence.layers[0] = layer_of(first);
  recurrence.width = width_of(first.weight.dtype());
  recurrence.steps = first.gates.size(0), recurrence.N = first.gates.size(1);
  recurrence.H = static_cast<int>(first.weight.size(1));
  recurrence.pitch = recurrence.H + recurrence.H % 2;
  return recurrence;
}

}  // namespace

bool lstm_fits(const LstmSteps& layer, int device) {
  const std::int64_t H = layer.weight.size(1);
  return layer.gates.dtype() == DType::f32 && H <= 32 * kMostColumns && units_of_block(H, device) <= kMostUnits;
}

bool lstm_pair_fits(const LstmSteps& first, const LstmSteps& second, int device) {
  const std::int64_t H = first.weight.size(1);
  return first.gates.dtype() == DType::f32 && H == second.weight.size(1) && first.weight.dtype() == second.weight.dtype() &&
         H <= 32 * kMostPairColumns && units_of_block(H, device) <= kMostPairUnits;
}

void lstm(const LstmSteps& layer, cudaStream_t stream) {
  const int device = layer.gates.device().index;
  require<Error>(lstm_fits(layer, device), "cuda: lstm: expected f32 and fewer units, got ", layer.gates.dtype(),
                 " and H=", layer.weight.size(1));
  run<1>(recurrence_of(layer), device, stream);
}

void lstm_pair(const LstmSteps& first, const LstmSteps& second, cudaStream_t stream) {
  const int device = first.gates.device().index;
  require<Error>(lstm_pair_fits(first, second, device), "cuda: lstm_pair: expected f32 and fewer units, got ",
                 first.gates.dtype(), " and H=", first.weight.size(1));
  Recurrence recurrence = recurrence_of(first);
  recurrence.layers[1] = layer_of(second);
  recurrence.input_weight = second.input_weight.raw();
  run<2>(recurrence, device, stream);
}

}  // namespace polyphase::cuda
