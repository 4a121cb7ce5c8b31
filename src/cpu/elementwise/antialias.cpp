// With x one row, K = 12 taps u of the upsampling filter and d of the other, and positions of the doubled rate s = 2m (even),
// 2m + 1 (odd):
//   v[s] = 2 sum over i of u[s + 5 - 2i] x[clamp(i, 0, L - 1)]                                             0 <= s < 2L
//   w[s] = v[s] + sin(alpha v[s])^2/beta,   out[t] = sum over k of d[k] w[clamp(2t + k - 5, 0, 2L - 1)]
// A task is a chunk of a row. Its inputs are copied with their surroundings and widened; v and w are stored in two rows, one of
// even and one of odd positions, that stay in L1. The backward pass does the steps in reverse, from x and the gradient.

#include "cpu/elementwise/antialias.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "cpu/conv/conv_kernels.hpp"
#include "cpu/elementwise/antialias_kernels.hpp"
#include "cpu/elementwise/copy.hpp"
#include "cpu/elementwise/elementwise_loop.hpp"
#include "cpu/reduce/reduce.hpp"
#include "cpu/threads.hpp"

namespace polyphase::cpu {
namespace {

constexpr int kTaps = TensorBackend::kAntialiasTaps;
constexpr std::int64_t kChunk = 1024;  // outputs of a task
// Rows of the doubled rate begin 3 positions before a task's first output, and their inputs 3 before these. Both have room for
// what kernels read and write past their ends.
constexpr std::int64_t kBefore = 3;
constexpr std::int64_t kBehind = 3;  // positions m after a task's outputs that these depend on
constexpr std::int64_t kRoom = kChunk + 2 * kBefore + 2 * kBehind + 2 * (kAntialiasLanes + kAntialiasReach);
constexpr std::int64_t kWork = 8;  // per output, in units of one element of a light function

// The parameters in the type of the computation.
template <class T>
struct Parameters {
  std::array<T, kTaps> up, down;  // up: doubled
  std::vector<T> alpha, beta;     // (C)
  explicit Parameters(const AntialiasedSnake& in) : alpha(read(in.alpha)), beta(read(in.beta)) {
    const std::vector<T> of_up = read(in.up), of_down = read(in.down);
    std::transform(of_up.begin(), of_up.end(), up.begin(), [](T tap) { return 2 * tap; });
    std::copy(of_down.begin(), of_down.end(), down.begin());
  }

 private:
  static std::vector<T> read(const Tensor& tensor) {
    std::vector<T> values(static_cast<std::size_t>(tensor.numel()));
    convert_elements(dtype_of<T>, values.data(), tensor.dtype(), tensor.raw(), tensor.numel());
    return values;
  }
};

// A task: n outputs from t0 on of row r; `number` counts the tasks of a row.
struct Chunk {
  std::int64_t r, number, t0, n;
};

// One thread's rows: at the lower rate from input t0 - kBefore - 3 on, at the doubled rate from m = t0 - kBefore on.
template <class E>
class Work {
 public:
  using T = Compute<E>;
  Work(const AntialiasedSnake& in, const Parameters<T>& parameters)
      : parameters_(parameters), x_(in.x.data<E>()), L_(in.x.size(2)), C_(in.x.size(1)) {}

 protected:
  static constexpr std::int64_t kFirstInput = kBefore + 3;

  [[nodiscard]] static std::int64_t whole_vectors(std::int64_t count) {
    return (count + kAntialiasLanes - 1) / kAntialiasLanes * kAntialiasLanes;
  }
  // Reads elements first, ..., first + count - 1 of a row; outside the row the end elements, or zeros.
  void read(const E* row, std::int64_t first, std::int64_t count, bool repeats_ends, T* to) const {
    const std::int64_t from = std::max<std::int64_t>(first, 0), until = std::min(first + count, L_);
    convert_elements(dtype_of<T>, to + (from - first), dtype_of<E>, row + from, until - from);
    std::fill(to, to + (from - first), repeats_ends ? to[from - first] : T{0});
    std::fill(to + (until - first), to + count, repeats_ends ? to[until - first - 1] : T{0});
  }
  // The place of the row's last position m = L - 1 in the rows of a chunk.
  [[nodiscard]] std::int64_t last_of(const Chunk& chunk) const { return L_ - 1 - (chunk.t0 - kBefore); }

  const AntialiasKernels<T>& kernels_ = antialias_kernels<T>();
  const Parameters<T>& parameters_;
  const E* x_;
  std::int64_t L_, C_;
  T input_[kRoom] = {}, even_[kRoom] = {}, odd_[kRoom] = {}, result_[kRoom] = {};
};

template <class E>
class Forward : public Work<E> {
 public:
  using T = Compute<E>;
  Forward(const Tensor& out, const AntialiasedSnake& in, const Parameters<T>& parameters)
      : Work<E>(in, parameters), out_(out.data<E>()) {}

  void operator()(const Chunk& chunk) {
    const auto [r, number, t0, n] = chunk;
    const std::int64_t outputs = this->whole_vectors(n), positions = outputs + kBefore + kBehind;
    T *even = this->even_, *odd = this->odd_;
    this->read(this->x_ + r * this->L_, t0 - this->kFirstInput, positions + kAntialiasLanes + kAntialiasReach, true,
               this->input_);
    const auto channel = static_cast<std::size_t>(r % this->C_);
    this->kernels_.up_snake(this->input_, this->parameters_.up.data(), this->parameters_.alpha[channel],
                            this->parameters_.beta[channel], even, odd, positions);
    if (t0 == 0)
      for (T* row : {odd, even}) std::fill(row, row + kBefore, even[kBefore]);
    const std::int64_t last = this->last_of(chunk);
    if (last + 1 < positions)
      for (T* row : {even, odd}) std::fill(row + last + 1, row + positions, odd[last]);
    this->kernels_.down(even, odd, this->parameters_.down.data(), this->result_, outputs);
    convert_elements(dtype_of<E>, out_ + r * this->L_ + t0, dtype_of<T>, this->result_, n);
  }

 private:
  E* out_;
};

template <class E>
class Backward : public Work<E> {
 public:
  using T = Compute<E>;
  // `x` may be null; `sums`: two per task, those of a row one after another.
  Backward(E* x, double* sums, std::int64_t row_tasks, const AntialiasedSnake& in, const Tensor& gradient,
           const Parameters<T>& parameters)
      : Work<E>(in, parameters), gradient_(gradient.data<E>()), dx_(x), sums_(sums), row_tasks_(row_tasks) {}

  void operator()(const Chunk& chunk) {
    const auto [r, number, t0, n] = chunk;
    // Three more positions: those past the row's end whose gradients its last one gets.
    const std::int64_t outputs = this->whole_vectors(n), positions = outputs + kBefore + 2 * kBehind;
    const std::int64_t inputs = positions + kAntialiasLanes + kAntialiasReach;
    T *even = this->even_, *odd = this->odd_;
    this->read(gradient_ + r * this->L_, t0 - this->kFirstInput, inputs, false, this->input_);
    this->kernels_.up(this->input_, this->parameters_.down.data(), even, odd, positions);
    gather_ends(chunk, positions);
    this->read(this->x_ + r * this->L_, t0 - this->kFirstInput, inputs, true, this->input_);
    const auto channel = static_cast<std::size_t>(r % this->C_);
    double* sums = sums_ + 2 * (r * row_tasks_ + number);
    sums[0] = sums[1] = 0;
    this->kernels_.snake_gradient(this->input_, this->parameters_.up.data(), this->parameters_.alpha[channel],
                                  this->parameters_.beta[channel], even, odd, positions, kBefore, kBefore + n, sums);
    if (dx_ == nullptr) return;
    this->kernels_.down(even, odd, this->parameters_.up.data(), this->result_, outputs);
    add_ends(chunk);
    convert_elements(dtype_of<E>, dx_ + r * this->L_ + t0, dtype_of<T>, this->result_, n);
  }

 private:
  // The gradients of w at the row's ends get those of the positions past them, which then become zero.
  void gather_ends(const Chunk& chunk, std::int64_t positions) {
    T *even = this->even_, *odd = this->odd_;
    if (chunk.t0 == 0)
      for (std::int64_t j = kBefore - 1; j >= 0; --j) {
        even[kBefore] += odd[j];
        even[kBefore] += even[j];
        even[j] = odd[j] = T{0};
      }
    const std::int64_t last = this->last_of(chunk);
    for (std::int64_t j = last + 1; j < positions; ++j) {
      odd[last] += even[j];
      odd[last] += odd[j];
      even[j] = odd[j] = T{0};
    }
  }
  // Adds the gradients of the inputs past the ends, which repeat the end elements.
  void add_ends(const Chunk& chunk) {
    if (chunk.t0 == 0)
      for (std::int64_t i = -1; i >= -kBefore; --i) this->result_[0] += of_input(chunk, i);
    if (chunk.t0 + chunk.n == this->L_)
      for (std::int64_t i = this->L_; i < this->L_ + kBehind; ++i) this->result_[chunk.n - 1] += of_input(chunk, i);
  }
  [[nodiscard]] T of_input(const Chunk& chunk, std::int64_t i) const {
    T sum{0};
    for (std::int64_t k = 0; k < kTaps; ++k) {
      const std::int64_t s = 2 * i + k - 5;
      if (s < 0 || s >= 2 * this->L_) continue;
      const std::int64_t j = s / 2 - (chunk.t0 - kBefore);
      sum += this->parameters_.up[static_cast<std::size_t>(k)] * (s % 2 == 0 ? this->even_ : this->odd_)[j];
    }
    return sum;
  }

  const E* gradient_;
  E* dx_;
  double* sums_;
  std::int64_t row_tasks_;
};

std::int64_t chunks_of(std::int64_t L) { return (L + kChunk - 1) / kChunk; }

// Calls begin()(Chunk) for all rows of x; begin(), once per thread, makes the worker.
template <class Begin>
void for_each_chunk(const Tensor& x, const Begin& begin) {
  const std::int64_t L = x.size(2), chunks = chunks_of(L), grain = kElementGrain / kWork / std::min(L, kChunk) + 1;
  parallel_for(x.size(0) * x.size(1) * chunks, grain, [&](std::int64_t first, std::int64_t last) {
    auto work = begin();
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t number = task % chunks, t0 = number * kChunk;
      work(Chunk{task / chunks, number, t0, std::min(kChunk, L - t0)});
    }
  });
}

}  // namespace

void antialiased_snake(const Tensor& out, const AntialiasedSnake& in) {
  if (out.numel() == 0) return;
  dispatch_floating(out.dtype(), [&]<class E>(E) {
    const Parameters<Compute<E>> parameters(in);
    for_each_chunk(in.x, [&] { return Forward<E>(out, in, parameters); });
  });
}

void antialiased_snake_backward(const AntialiasedSnakeGradients& out, const AntialiasedSnake& in, const Tensor& gradient) {
  const std::int64_t N = in.x.size(0), C = in.x.size(1), chunks = chunks_of(in.x.size(2));
  const TensorOptions wide{.dtype = DType::f64, .device = Device::cpu()};
  const Tensor sums = Tensor::empty({N, C, chunks, 2}, wide);  // before the factors 1/beta and -1/beta^2
  dispatch_floating(in.x.dtype(), [&]<class E>(E) {
    const Parameters<Compute<E>> parameters(in);
    E* const x = out.x.defined() ? out.x.data<E>() : nullptr;
    for_each_chunk(in.x, [&] { return Backward<E>(x, sums.data<double>(), chunks, in, gradient, parameters); });
  });
  const Tensor totals = Tensor::empty({1, C, 1, 2}, wide);
  reduce(ReduceOp::sum, totals, sums);
  double* of_channel = totals.data<double>();
  std::vector<double> beta(static_cast<std::size_t>(C));
  convert_elements(DType::f64, beta.data(), in.beta.dtype(), in.beta.raw(), C);
  std::vector<double> of_alpha, of_beta;
  for (const double b : beta) {
    of_alpha.push_back(of_channel[0] / b);
    of_beta.push_back(-of_channel[1] / (b * b));
    of_channel += 2;
  }
  if (out.alpha.defined()) convert_elements(out.alpha.dtype(), out.alpha.raw(), DType::f64, of_alpha.data(), C);
  if (out.beta.defined()) convert_elements(out.beta.dtype(), out.beta.raw(), DType::f64, of_beta.data(), C);
}

}  // namespace polyphase::cpu
