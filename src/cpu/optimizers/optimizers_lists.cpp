#include "cpu/optimizers/optimizers_lists.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include "cpu/optimizers/optimizers_elements.hpp"

namespace polyphase::cpu {
namespace {

constexpr std::int64_t kNormPiece = 4096;  // elements whose squares are summed separately

template <class T>
constexpr bool kIsHalf = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
using MathOf = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
MathOf<T> widened(T x) {
  return static_cast<MathOf<T>>(x);
}

std::vector<std::int64_t> sizes_of(std::span<const Tensor> tensors) {
  std::vector<std::int64_t> sizes;
  for (const Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

// Calls function(T{}) for floating-point T.
template <class Function>
void dispatch_floating(const char* operation, DType dtype, const Function& function) {
  require<DTypeError>(is_floating_point(dtype), operation, ": expected floating-point tensors, got ", dtype);
  dispatch(dtype, [&]<class T>(T tag) {
    if constexpr (!std::is_same_v<T, std::int64_t>) function(tag);
  });
}

// In eight lanes, so that the compiler can use vectors.
template <class T>
double sum_of_squares(const T* x, std::int64_t count) {
  std::array<double, 8> lanes{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const auto wide = static_cast<double>(widened(x[i + static_cast<std::int64_t>(lane)]));
      lanes[lane] += wide * wide;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const auto wide = static_cast<double>(widened(x[i]));
    lanes[lane] += wide * wide;
  }
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

double norm_of(std::span<const Tensor> tensors) {
  struct Piece {
    const Tensor* tensor;
    std::int64_t first, count;
  };
  std::vector<Piece> pieces;
  for (const Tensor& tensor : tensors)
    for (std::int64_t first = 0; first < tensor.numel(); first += kNormPiece)
      pieces.push_back({&tensor, first, std::min(kNormPiece, tensor.numel() - first)});
  std::vector<double> sums(pieces.size());
  parallel_for(static_cast<std::int64_t>(pieces.size()), kElementGrain / kNormPiece, [&](std::int64_t begin, std::int64_t end) {
    for (auto p = static_cast<std::size_t>(begin); p < static_cast<std::size_t>(end); ++p) {
      const Piece& piece = pieces[p];
      dispatch_floating("clip_norm", piece.tensor->dtype(),
                        [&]<class T>(T) { sums[p] = sum_of_squares(piece.tensor->data<T>() + piece.first, piece.count); });
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

// x = function(x) for every element, with x in f32 for 16-bit types.
template <class Function>
void update_all(const char* operation, std::span<const Tensor> tensors, const Function& function) {
  for_all_elements(sizes_of(tensors), [&](std::size_t i, std::int64_t first, std::int64_t count) {
    dispatch_floating(operation, tensors[i].dtype(), [&]<class T>(T) {
      T* x = tensors[i].data<T>() + first;
      for (std::int64_t j = 0; j < count; ++j) x[j] = T(function(widened(x[j])));
    });
  });
}

}  // namespace

void clip_norm(std::span<const Tensor> tensors, double max_norm, bool finite_only, const Tensor& norm) {
  const double total = norm_of(tensors);
  *norm.data<double>() = total;
  const double factor = max_norm / (total + 1e-6);
  if (factor >= 1 || (finite_only && !std::isfinite(total))) return;
  update_all("clip_norm", tensors, [factor]<class A>(A x) { return x * static_cast<A>(factor); });
}

void unscale(std::span<const Tensor> tensors, const Tensor& scale, const Tensor& found) {
  const double factor = 1 / *scale.data<double>();
  std::atomic<bool> bad = false;
  update_all("unscale", tensors, [factor, &bad]<class A>(A x) {
    if (!std::isfinite(x)) bad.store(true, std::memory_order_relaxed);
    return x * static_cast<A>(factor);
  });
  if (bad) *found.data<double>() = 1;
}

void average(std::span<const Tensor> averages, std::span<const Tensor> values, const AverageStep& step, const Tensor& updates) {
  auto& count = *updates.data<std::int64_t>();
  const auto n = static_cast<double>(count);
  const double weight = 1 - (step.ramp ? std::min(step.decay, (1 + n) / (10 + n)) : step.decay);
  for_all_elements(sizes_of(averages), [&](std::size_t i, std::int64_t first, std::int64_t size) {
    dispatch_floating("average", averages[i].dtype(), [&]<class T>(T) {
      T* a = averages[i].data<T>() + first;
      const T* x = values[i].data<T>() + first;
      const auto w = static_cast<MathOf<T>>(weight);
      for (std::int64_t j = 0; j < size; ++j) a[j] = T(widened(a[j]) + w * (widened(x[j]) - widened(a[j])));
    });
  });
  ++count;
}

void copy_list(std::span<const Tensor> out, std::span<const Tensor> in) {
  for_all_elements(sizes_of(out), [&](std::size_t i, std::int64_t first, std::int64_t size) {
    dispatch_floating("copy_list", out[i].dtype(), [&]<class T>(T) {
      T* const to = out[i].data<T>() + first;
      if (in[i].dtype() == out[i].dtype())
        std::copy_n(in[i].data<T>() + first, size, to);
      else
        std::transform(in[i].data<float>() + first, in[i].data<float>() + first + size, to, [](float x) { return T(x); });
    });
  });
}

void update_loss_scale(const Tensor& state, std::span<const Tensor> found, const LossScaleStep& step) {
  const auto at = [values = state.data<double>()](LossScaleField field) -> double& {
    return values[static_cast<std::size_t>(field)];
  };
  bool bad = false;
  for (const Tensor& flag : found) {
    bad = bad || *flag.data<double>() != 0;
    *flag.data<double>() = 0;
  }
  double& scale = at(LossScaleField::scale);
  double& good = at(LossScaleField::growth_tracker);
  if (bad) {
    scale *= step.backoff;
    good = 0;
    at(LossScaleField::skipped) += 1;
  } else if (++good >= static_cast<double>(step.interval)) {
    if (scale * step.growth <= std::numeric_limits<float>::max()) scale *= step.growth;
    good = 0;
  }
}

}  // namespace polyphase::cpu
