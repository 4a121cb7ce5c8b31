// A step multiplies the weight by one vector per sample of the batch and is limited by reading the weight. So the weight is
// read in place, not packed at every step as in matmul(). Every other step takes the rows from the last to the first, so that
// it begins with those that the step before has left in the cache.

#include "cpu/linear/lstm.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/linear/lstm_kernels.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kPiece = 32;  // rows that all samples are multiplied by, one after another

/// What a step multiplies: rows [begin, end) of w, of which the last come first if `backwards`.
struct StepRows {
  std::int64_t begin, end;
  bool backwards;
};

/// gate[n][row] += w[row] h[n]
template <class T>
void multiply(const LstmKernels<T>& kernels, const StepRows& rows, T* gate, const T* w, const T* h, std::int64_t N,
              std::int64_t H) {
  const std::int64_t pieces = (rows.end - rows.begin + kPiece - 1) / kPiece;
  for (std::int64_t i = 0; i < pieces; ++i) {
    const std::int64_t first = rows.begin + (rows.backwards ? pieces - 1 - i : i) * kPiece;
    const std::int64_t count = std::min(kPiece, rows.end - first);
    for (std::int64_t n = 0; n < N; ++n) kernels.add_products(gate + n * 4 * H + first, w + first * H, count, h + n * H, H);
  }
}

template <class T>
void run(const LstmSteps& layer) {
  const LstmKernels<T>& kernels = lstm_kernels<T>();
  const std::int64_t steps = layer.gates.shape()[0], N = layer.gates.shape()[1], H = layer.weight.shape()[1], G = 4 * H;
  const T* const w = layer.weight.data<T>();
  std::vector<T> biases(static_cast<std::size_t>(G));
  for (const Tensor& bias : {layer.input_bias, layer.hidden_bias})
    if (bias.defined()) std::transform(biases.begin(), biases.end(), bias.data<T>(), biases.begin(), std::plus<T>());
  const std::vector<T> zeros(static_cast<std::size_t>(N * H));
  const T* h = layer.h.defined() ? layer.h.data<T>() : zeros.data();
  const T* c = layer.c.defined() ? layer.c.data<T>() : zeros.data();
  for (std::int64_t t = 0; t < steps; ++t) {
    T* const gate = layer.gates.data<T>() + t * N * G;
    T *const new_h = layer.hidden.data<T>() + t * N * H, *const new_c = layer.cells.data<T>() + t * N * H;
    for (std::int64_t n = 0; n < N; ++n)
      std::transform(biases.begin(), biases.end(), gate + n * G, gate + n * G, std::plus<T>());
    parallel_for(G, kElementGrain / (N * H) + 1, [&](std::int64_t begin, std::int64_t end) {
      multiply(kernels, {begin, end, t % 2 == 1}, gate, w, h, N, H);
    });
    for (std::int64_t n = 0; n < N; ++n) kernels.cell(gate + n * G, c + n * H, new_h + n * H, new_c + n * H, H);
    h = new_h, c = new_c;
  }
}

}  // namespace

void lstm(const LstmSteps& layer) { layer.gates.dtype() == DType::f64 ? run<double>(layer) : run<float>(layer); }

}  // namespace polyphase::cpu
