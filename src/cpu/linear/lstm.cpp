// A step multiplies the weight by one vector per sample of the batch and is limited by reading the weight. So the weight is
// read in place, not packed at every step as in matmul().

#include "cpu/linear/lstm.hpp"

#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/linear/lstm_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

template <class T>
void run(const Tensor& gates, const Tensor& weight, const Tensor& hidden, const Tensor& cells) {
  const LstmKernels<T>& kernels = lstm_kernels<T>();
  const std::int64_t steps = gates.shape()[0], N = gates.shape()[1], H = weight.shape()[1], G = 4 * H;
  const T* const w = weight.data<T>();
  for (std::int64_t t = 0; t < steps; ++t) {
    T* const gate = gates.data<T>() + t * N * G;
    const T* const h = hidden.data<T>() + t * N * H;
    const T* const c = cells.data<T>() + t * N * H;
    parallel_for(G, kElementGrain / (N * H) + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = 0; n < N; ++n) kernels.add_products(gate + n * G + begin, w + begin * H, end - begin, h + n * H, H);
    });
    for (std::int64_t n = 0; n < N; ++n)
      kernels.cell(gate + n * G, c + n * H, hidden.data<T>() + ((t + 1) * N + n) * H, cells.data<T>() + ((t + 1) * N + n) * H,
                   H);
  }
}

}  // namespace

void lstm(const Tensor& gates, const Tensor& weight, const Tensor& hidden, const Tensor& cells) {
  gates.dtype() == DType::f64 ? run<double>(gates, weight, hidden, cells) : run<float>(gates, weight, hidden, cells);
}

}  // namespace polyphase::cpu
