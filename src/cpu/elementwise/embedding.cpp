#include "cpu/elementwise/embedding.hpp"

#include <algorithm>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/threads.hpp"
#include "tensor/error.hpp"

namespace polyphase::cpu {
namespace {

void check_codes(const Tensor& codes, std::span<const EmbeddingTable> tables) {
  const auto* const from = codes.data<std::int64_t>();
  for (std::int64_t n = 0; n < codes.size(0); ++n)
    for (std::int64_t q = 0; q < codes.size(1); ++q)
      for (std::int64_t l = 0; l < codes.size(2); ++l) {
        const std::int64_t code = from[n * codes.stride(0) + q * codes.stride(1) + l * codes.stride(2)];
        const std::int64_t size = tables[static_cast<std::size_t>(q)].rows.size(0);
        require<ShapeError>(code >= 0 && code < size, "index_select: expected positions in [0, ", size, "), got ", code);
      }
}

template <class T>
void embed_as(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) {
  using A = Compute<T>;
  const std::int64_t L = out.size(1), D = out.size(2);
  const auto* const from = codes.data<std::int64_t>();
  T* const to = out.data<T>();
  parallel_for(out.size(0) * L, kElementGrain / std::max<std::int64_t>(1, D * codes.size(1)) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t* const own = from + row / L * codes.stride(0) + row % L * codes.stride(2);
                   T* const sums = to + row * D;
                   for (std::size_t q = 0; q < tables.size(); ++q) {
                     const std::int64_t code = own[static_cast<std::int64_t>(q) * codes.stride(1)];
                     const T* const entry = tables[q].rows.data<T>() + code * D;
                     const bool divides = tables[q].usage.defined();
                     const A usage =
                         divides ? std::max(static_cast<A>(tables[q].usage.data<T>()[code]), static_cast<A>(least_usage))
                                 : A{1};
                     for (std::int64_t d = 0; d < D; ++d) {
                       const T value = divides ? static_cast<T>(static_cast<A>(entry[d]) / usage) : entry[d];
                       sums[d] = q == 0 ? value : static_cast<T>(static_cast<A>(sums[d]) + static_cast<A>(value));
                     }
                   }
                 }
               });
}

}  // namespace

void embed(const Tensor& out, const Tensor& codes, std::span<const EmbeddingTable> tables, double least_usage) {
  check_codes(codes, tables);
  if (out.numel() == 0) return;
  dispatch(out.dtype(), [&](auto element) {
    using T = decltype(element);
    if constexpr (!std::is_same_v<T, std::int64_t>) embed_as<T>(out, codes, tables, least_usage);
  });
}

}  // namespace polyphase::cpu
