// out[n, l, :] = the sum over q of table q's entry codes[n, q, l]. With few tables a thread adds the entries of one column;
// with more a warp has the entries of its own tables, so that a frame of a codec waits for memory twice and not twice per
// table. Both kernels are short: for a frame, unrolled loops take the time of reading their instructions. Bytes: the entries
// and the output; codes come from the cache.

#include "cuda/elementwise/embedding.hpp"

#include <algorithm>

#include "cuda/elementwise/index_check.cuh"
#include "cuda/kernel/address.hpp"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kTables = 64;     // per launch: their addresses are kernel parameters
constexpr int kFew = 4;         // tables whose entries a thread adds by itself
constexpr int kColumns = 32;    // of a block of embed_many_kernel
constexpr int kMostWarps = 32;  // of such a block

template <class T>
struct EmbedLaunch {
  const T* rows[kTables];
  const T* usage[kTables];  // null: entries are rows
  std::int64_t sizes[kTables];
  int tables;
  bool adds;  // to what is in `out`
  const std::int64_t* codes;
  std::int64_t strides[3];  // of codes
  std::int64_t count;       // of out
  Divider by_D, by_L;
  MathOf<T> least_usage;
  T* out;
  BadIndex* bad;
};

/// At most kFew tables: a thread adds their entries of one column.
template <class T>
__global__ void __launch_bounds__(kThreads) embed_few_kernel(const __grid_constant__ EmbedLaunch<T> launch) {
  using A = MathOf<T>;
  const bool narrow = launch.count < std::int64_t{1} << 31;
  for (std::int64_t flat = thread_position(); flat < launch.count; flat += thread_count()) {
    std::int64_t d = flat;
    std::int64_t l = launch.by_D.split(d, narrow);
    const std::int64_t n = launch.by_L.split(l, narrow);
    const std::int64_t* const codes = launch.codes + n * launch.strides[0] + l * launch.strides[2];
    A sum = launch.adds ? convert<A>(launch.out[flat]) : A(0);
    int bad = launch.tables;  // the first table without such an entry
    std::int64_t code[kFew];
    A value[kFew], usage[kFew];
    const auto for_tables = [&](const auto& use) {
#pragma unroll
      for (int q = 0; q < kFew; ++q)
        if (q < launch.tables) use(q);
    };
    for_tables([&](int q) { code[q] = codes[q * launch.strides[1]]; });
    for_tables([&](int q) {
      const bool fits = code[q] >= 0 && code[q] < launch.sizes[q];
      if (!fits) bad = min(bad, q);
      value[q] = fits ? convert<A>(launch.rows[q][code[q] * launch.by_D.size + d]) : A(0);
      usage[q] = launch.usage[q] != nullptr && fits ? convert<A>(launch.usage[q][code[q]]) : A(1);
    });
    for_tables([&](int q) {
      if (launch.usage[q] != nullptr)
        value[q] = convert<A>(convert<T>(value[q] / (usage[q] < launch.least_usage ? launch.least_usage : usage[q])));
      sum = q == 0 && !launch.adds ? value[q] : convert<A>(convert<T>(sum + value[q]));
    });
    if (bad < launch.tables && d == 0) note_bad_index(launch.bad, codes[bad * launch.strides[1]], launch.sizes[bad]);
    launch.out[flat] = convert<T>(sum);
  }
}

/// More tables: a warp loads the entries of a table, kColumns columns of
/// a position, and another one those of the next table at the same time. The first warp adds them in the order of the tables.
template <class T>
__global__ void __launch_bounds__(kColumns* kMostWarps) embed_many_kernel(const __grid_constant__ EmbedLaunch<T> launch) {
  using A = MathOf<T>;
  __shared__ A entries[kTables][kColumns];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int warps = static_cast<int>(blockDim.y);
  const std::int64_t D = launch.by_D.size, parts = (D + kColumns - 1) / kColumns;
  for (std::int64_t block = blockIdx.x; block < launch.count / D * parts; block += gridDim.x) {
    const std::int64_t position = block / parts, d = block % parts * kColumns + lane;
    const std::int64_t n = position / launch.by_L.size, l = position % launch.by_L.size;
    const std::int64_t* const codes = launch.codes + n * launch.strides[0] + l * launch.strides[2];
    for (int q = warp; q < launch.tables; q += warps) {
      const std::int64_t code = codes[q * launch.strides[1]];
      const bool fits = code >= 0 && code < launch.sizes[q];
      A value = fits && d < D ? convert<A>(launch.rows[q][code * D + d]) : A(0);
      if (launch.usage[q] != nullptr && fits) {
        const A usage = convert<A>(launch.usage[q][code]);
        value = convert<A>(convert<T>(value / (usage < launch.least_usage ? launch.least_usage : usage)));
      }
      entries[q][lane] = value;
      if (!fits && d == 0) note_bad_index(launch.bad, code, launch.sizes[q]);
    }
    __syncthreads();
    if (warp == 0 && d < D) {
      A sum = launch.adds ? convert<A>(launch.out[position * D + d]) : entries[0][lane];
      for (int q = launch.adds ? 0 : 1; q < launch.tables; ++q) sum = convert<A>(convert<T>(sum + entries[q][lane]));
      launch.out[position * D + d] = convert<T>(sum);
    }
    __syncthreads();
  }
}

template <class T>
void launch_embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage,
                  cudaStream_t stream) {
  EmbedLaunch<T> launch{};
  launch.count = out.numel(), launch.out = static_cast<T*>(out.raw());
  launch.by_D = Divider(out.size(2)), launch.by_L = Divider(out.size(1));
  launch.least_usage = static_cast<MathOf<T>>(least_usage), launch.bad = bad_index_of(out.device().index);
  for (int d = 0; d < 3; ++d) launch.strides[d] = codes.stride(d);
  for (std::size_t first = 0; first < tables.size(); first += kTables) {
    const auto some = tables.subspan(first, std::min<std::size_t>(kTables, tables.size() - first));
    launch.tables = static_cast<int>(some.size()), launch.adds = first > 0;
    launch.codes = static_cast<const std::int64_t*>(codes.raw()) + static_cast<std::int64_t>(first) * codes.stride(1);
    for (std::size_t q = 0; q < some.size(); ++q) {
      launch.rows[q] = static_cast<const T*>(some[q].rows.raw());
      launch.usage[q] = address_or_null<const T>(some[q].usage);
      launch.sizes[q] = some[q].rows.size(0);
    }
    if (launch.tables <= kFew) {
      embed_few_kernel<T><<<grid_for(launch.count), kThreads, 0, stream>>>(launch);
    } else {
      const std::int64_t blocks = launch.count / out.size(2) * ((out.size(2) + kColumns - 1) / kColumns);
      const dim3 threads(kColumns, static_cast<unsigned>(std::min(launch.tables, kMostWarps)));
      embed_many_kernel<T><<<static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 20)), threads, 0, stream>>>(launch);
    }
    check_launch("embedding");
  }
}

}  // namespace

void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage,
           cudaStream_t stream) {
  if (out.numel() == 0) return;
  dispatch_element(out.dtype(), [&]<class T>(T) {
    if constexpr (!std::is_same_v<T, std::int64_t>) launch_embed<T>(out, codes, tables, least_usage, stream);
  });
}

}  // namespace polyphase::cuda
