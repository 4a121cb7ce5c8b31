#include "cpu/optimizers.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// One parameter as plain numbers, stepped by PyTorch's formulas.
struct Plain {
  std::vector<double> w, g, m, v;

  void sgd(const SgdStep& s) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      double d = g[i] + s.weight_decay * w[i];
      if (s.momentum != 0) {
        m[i] = s.first ? d : s.momentum * m[i] + (1 - s.dampening) * d;
        d = s.nesterov ? d + s.momentum * m[i] : m[i];
      }
      w[i] -= s.learning_rate * d;
    }
  }
  void adam(const AdamStep& s) {
    const auto t = static_cast<double>(s.step);
    for (std::size_t i = 0; i < w.size(); ++i) {
      double d = g[i];
      if (s.decoupled) w[i] *= 1 - s.learning_rate * s.weight_decay;
      if (!s.decoupled) d += s.weight_decay * w[i];
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * d;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * d * d;
      const double m_hat = m[i] / (1 - std::pow(s.beta1, t));
      const double denominator = std::sqrt(v[i]) / std::sqrt(1 - std::pow(s.beta2, t)) + s.epsilon;
      w[i] -= s.learning_rate * m_hat / denominator;
    }
  }
};

// Parameters of several sizes, as slots and as plain numbers.
struct Parameters {
  std::vector<OptimizerSlot> slots;
  std::vector<Plain> plain;

  Parameters(DType dtype, const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes) {
      OptimizerSlot slot{random_f64({size}, 1).to(dtype), random_f64({size}, 2).to(dtype),
                         Tensor::zeros({size}, {.dtype = dtype}), Tensor::zeros({size}, {.dtype = dtype})};
      const auto zeros = std::vector<double>(static_cast<std::size_t>(size), 0);
      plain.push_back({numbers(slot.parameter), numbers(slot.grad), zeros, zeros});
      slots.push_back(slot);
    }
  }
  static std::vector<double> numbers(const Tensor& t) { return t.to(DType::f64).to_vector<double>(); }

  // The largest difference in parameters and state.
  double error() const {
    double worst = 0;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      const auto compare = [&](const Tensor& t, const std::vector<double>& want) {
        worst = std::max(worst, max_difference(t, Tensor::from_vector(want)));
      };
      compare(slots[k].parameter, plain[k].w);
      compare(slots[k].momentum, plain[k].m);
      compare(slots[k].second, plain[k].v);
    }
    return worst;
  }
};

const std::vector<std::int64_t> kSizes = {1, 7, 0, 64, 33};
constexpr DType kTypes[] = {DType::f64, DType::f32};
double tolerance_of(DType dtype) { return dtype == DType::f64 ? kDoubleRounding : kFloatFunction; }

}  // namespace

TEST_CASE("SGD in all its forms") {
  for_each_isa([] {
    for (const DType dtype : kTypes)
      for (const double momentum : {0.0, 0.9})
        for (const bool nesterov : {false, true})
          for (const double decay : {0.0, 0.1}) {
            Parameters parameters(dtype, kSizes);
            for (int step = 0; step < 3; ++step) {
              const SgdStep sgd{0.05, momentum, nesterov ? 0 : 0.3, decay, nesterov, step == 0};
              cpu::sgd_step(parameters.slots, sgd);
              for (Plain& p : parameters.plain) p.sgd(sgd);
            }
            CAPTURE(dtype);
            CAPTURE(momentum);
            CAPTURE(nesterov);
            CHECK(parameters.error() <= tolerance_of(dtype));
          }
  });
}

TEST_CASE("SGD without momentum needs no velocity") {
  const Tensor w = Tensor::ones({3}), g = Tensor::full({3}, 2);
  const OptimizerSlot slot{w, g, {}, {}};
  cpu::sgd_step({&slot, 1}, {0.25, 0, 0, 0, false, true});
  CHECK(w.to_vector<float>() == std::vector<float>{0.5F, 0.5F, 0.5F});
}

TEST_CASE("Adam and AdamW") {
  for_each_isa([] {
    for (const DType dtype : kTypes)
      for (const bool decoupled : {false, true})
        for (const double decay : {0.0, 0.1}) {
          Parameters parameters(dtype, kSizes);
          for (std::int64_t step = 1; step <= 4; ++step) {
            const AdamStep adam{0.01, 0.9, 0.999, 1e-8, decay, decoupled, step};
            cpu::adam_step(parameters.slots, adam);
            for (Plain& p : parameters.plain) p.adam(adam);
          }
          CAPTURE(dtype);
          CAPTURE(decoupled);
          CHECK(parameters.error() <= tolerance_of(dtype));
        }
  });
}

TEST_CASE("the thread count does not change a bit") {
  const int before = num_threads();
  std::vector<float> one;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Parameters parameters(DType::f32, {50001, 3, 70000});
    cpu::adam_step(parameters.slots, {0.01, 0.9, 0.999, 1e-8, 0.1, true, 1});
    cpu::sgd_step(parameters.slots, {0.01, 0.9, 0, 0.1, true, false});
    std::vector<float> all;
    for (const OptimizerSlot& slot : parameters.slots)
      for (const float w : slot.parameter.to_vector<float>()) all.push_back(w);
    if (threads == 1) one = all;
    CHECK(all == one);
  }
  set_num_threads(before);
}

TEST_CASE("other dtypes are refused and nothing is changed") {
  const Tensor w = Tensor::ones({2}), h = Tensor::ones({2}, {.dtype = DType::f16});
  const std::vector<OptimizerSlot> slots = {{w, w.clone(), w.clone(), w.clone()}, {h, h, h, h}};
  CHECK(error_of<DTypeError>([&] {
          cpu::sgd_step(slots, {0.1, 0, 0, 0, false, true});
          return 0;
        }) == "sgd_step: expected parameters of f32 or f64, got f16");
  CHECK(error_of<DTypeError>([&] {
          cpu::adam_step(slots, {0.1, 0.9, 0.999, 1e-8, 0, false, 1});
          return 0;
        }) == "adam_step: expected parameters of f32 or f64, got f16");
  CHECK(w.to_vector<float>() == std::vector<float>{1, 1});
}
