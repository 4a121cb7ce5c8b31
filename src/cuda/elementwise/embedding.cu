// out[n, l, :] = the sum over q of table q's entry codes[n, q, l]. A thread adds the entries of one column; it loads the codes
// of kTogether tables, then their entries. The loop over these groups is not unrolled: for a frame of a codec the kernel's time
// would be that of reading its instructions. Bytes: the entries and the output; codes come from the cache.

#include "cuda/elementwise/embedding.hpp"

#include <algorithm>

#include "cuda/elementwise/index_check.cuh"
#include "cuda/kernel/elements.cuh"
#include "cuda/kernel/strided.cuh"
#include "cuda/runtime/runtime.hpp"

namespace polyphase::cuda {
namespace {

constexpr int kTables = 64;   // per launch: their addresses are kernel parameters
constexpr int kTogether = 8;  // tables whose entries a thread loads before it adds them: enough loads outstanding

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

template <class T>
__global__ void __launch_bounds__(kThreads) embed_kernel(const __grid_constant__ EmbedLaunch<T> launch) {
  using A = MathOf<T>;
  const bool narrow = launch.count < std::int64_t{1} << 31;
  for (std::int64_t flat = thread_position(); flat < launch.count; flat += thread_count()) {
    std::int64_t d = flat;
    std::int64_t l = launch.by_D.split(d, narrow);
    const std::int64_t n = launch.by_L.split(l, narrow);
    const std::int64_t* const codes = launch.codes + n * launch.strides[0] + l * launch.strides[2];
    A sum = launch.adds ? convert<A>(launch.out[flat]) : A(0);
    int bad = launch.tables;  // the first table without such an entry
#pragma unroll 1
    for (int first = 0; first < launch.tables; first += kTogether) {
      std::int64_t code[kTogether];
      A value[kTogether], usage[kTogether];
      const auto for_tables = [&](const auto& use) {
#pragma unroll
        for (int j = 0; j < kTogether; ++j)
          if (first + j < launch.tables) use(j, first + j);
      };
      for_tables([&](int j, int q) { code[j] = codes[q * launch.strides[1]]; });
      for_tables([&](int j, int q) {
        const bool fits = code[j] >= 0 && code[j] < launch.sizes[q];
        if (!fits) bad = min(bad, q);
        value[j] = fits ? convert<A>(launch.rows[q][code[j] * launch.by_D.size + d]) : A(0);
        usage[j] = launch.usage[q] != nullptr && fits ? convert<A>(launch.usage[q][code[j]]) : A(1);
      });
      for_tables([&](int j, int q) {
        if (launch.usage[q] != nullptr)
          value[j] = convert<A>(convert<T>(value[j] / (usage[j] < launch.least_usage ? launch.least_usage : usage[j])));
        sum = q == 0 && !launch.adds ? value[j] : convert<A>(convert<T>(sum + value[j]));
      });
    }
    if (bad < launch.tables && d == 0) note_bad_index(launch.bad, codes[bad * launch.strides[1]], launch.sizes[bad]);
    launch.out[flat] = convert<T>(sum);
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
      launch.usage[q] = some[q].usage.defined() ? static_cast<const T*>(some[q].usage.raw()) : nullptr;
      launch.sizes[q] = some[q].rows.size(0);
    }
    embed_kernel<T><<<grid_for(launch.count), kThreads, 0, stream>>>(launch);
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
