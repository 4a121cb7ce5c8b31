#include "cpu/optimizers/optimizers.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu/optimizers/optimizers_lists.hpp"
#include "cpu/threads.hpp"
#include "support/conv.hpp"
#include "support/helpers.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

const TensorOptions kDouble{.dtype = DType::f64, .device = Device::cpu()};

StepControl control_for(std::int64_t parameters, double learning_rate) {
  return {Tensor::full({}, learning_rate, kDouble), Tensor::zeros({parameters + 1}, {.dtype = DType::i64}), {}, parameters};
}

// One parameter as plain numbers, updated by PyTorch's formulas.
struct Plain {
  std::vector<double> w, g, m, v;

  void sgd(const SgdStep& s, double rate, int t) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      double d = g[i] + s.weight_decay * w[i];
      if (s.momentum != 0) {
        m[i] = t == 1 ? d : s.momentum * m[i] + (1 - s.dampening) * d;
        d = s.nesterov ? d + s.momentum * m[i] : m[i];
      }
      w[i] -= rate * d;
    }
  }
  void adam(const AdamStep& s, double rate, int t) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      double d = g[i];
      if (s.decoupled) w[i] *= 1 - rate * s.weight_decay;
      if (!s.decoupled) d += s.weight_decay * w[i];
      m[i] = s.beta1 * m[i] + (1 - s.beta1) * d;
      v[i] = s.beta2 * v[i] + (1 - s.beta2) * d * d;
      const double m_hat = m[i] / (1 - std::pow(s.beta1, t));
      const double denominator = std::sqrt(v[i]) / std::sqrt(1 - std::pow(s.beta2, t)) + s.epsilon;
      w[i] -= rate * m_hat / denominator;
    }
  }
};

// Parameters of several sizes, as slots and as plain numbers.
struct Parameters {
  std::vector<OptimizerSlot> slots;
  std::vector<Plain> plain;
  StepControl control;

  Parameters(DType dtype, const std::vector<std::int64_t>& sizes, double learning_rate)
      : control(control_for(static_cast<std::int64_t>(sizes.size()), learning_rate)) {
    for (const std::int64_t size : sizes) {
      OptimizerSlot slot{random_f64({size}, 1).to(dtype), random_f64({size}, 2).to(dtype),
                         Tensor::zeros({size}, {.dtype = dtype}), Tensor::zeros({size}, {.dtype = dtype}),
                         static_cast<std::int64_t>(slots.size())};
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
        worst = worse(worst, max_difference(t, Tensor::from_vector(want)));
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
            Parameters parameters(dtype, kSizes, 0.05);
            for (int step = 1; step <= 3; ++step) {
              const SgdStep sgd{momentum, nesterov ? 0 : 0.3, decay, nesterov};
              cpu::sgd_step(parameters.slots, sgd, parameters.control);
              for (Plain& p : parameters.plain) p.sgd(sgd, 0.05, step);
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
  cpu::sgd_step({&slot, 1}, {0, 0, 0, false}, control_for(1, 0.25));
  CHECK(w.to_vector<float>() == std::vector<float>{0.5F, 0.5F, 0.5F});
}

TEST_CASE("Adam and AdamW") {
  for_each_isa([] {
    for (const DType dtype : kTypes)
      for (const bool decoupled : {false, true})
        for (const double decay : {0.0, 0.1}) {
          Parameters parameters(dtype, kSizes, 0.01);
          for (int step = 1; step <= 4; ++step) {
            const AdamStep adam{0.9, 0.999, 1e-8, decay, decoupled};
            cpu::adam_step(parameters.slots, adam, parameters.control);
            for (Plain& p : parameters.plain) p.adam(adam, 0.01, step);
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
    Parameters parameters(DType::f32, {50001, 3, 70000}, 0.01);
    std::vector<Tensor> weights, gradients;
    for (const OptimizerSlot& slot : parameters.slots) weights.push_back(slot.parameter), gradients.push_back(slot.grad);
    const Tensor norm = Tensor::full({}, 0, kDouble);
    cpu::clip_norm(gradients, 1, false, norm);
    cpu::adam_step(parameters.slots, {0.9, 0.999, 1e-8, 0.1, true}, parameters.control);
    cpu::sgd_step(parameters.slots, {0.9, 0, 0.1, true}, parameters.control);
    std::vector<float> all{static_cast<float>(norm.item())};
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
          cpu::sgd_step(slots, {0, 0, 0, false}, control_for(1, 0.1));
          return 0;
        }) == "sgd_step: expected parameters of f32 or f64, got f16");
  CHECK(error_of<DTypeError>([&] {
          cpu::adam_step(slots, {0.9, 0.999, 1e-8, 0, false}, control_for(1, 0.1));
          return 0;
        }) == "adam_step: expected parameters of f32 or f64, got f16");
  CHECK(w.to_vector<float>() == std::vector<float>{1, 1});
}

TEST_CASE("a step counts for its own parameters, and in all; a skipped one changes and counts nothing") {
  Parameters parameters(DType::f32, {3, 5}, 0.1);
  const auto counts = [&] { return parameters.control.counts.to_vector<std::int64_t>(); };
  const OptimizerSlot second = parameters.slots[1];
  cpu::adam_step({&second, 1}, {0.9, 0.999, 1e-8, 0, false}, parameters.control);
  CHECK(counts() == std::vector<std::int64_t>{0, 1, 1});
  StepControl later_group = parameters.control;
  later_group.total = -1;
  cpu::sgd_step(parameters.slots, {0, 0, 0, false}, later_group);
  CHECK(counts() == std::vector<std::int64_t>{1, 2, 1});

  const std::vector<float> before = second.parameter.to_vector<float>();
  parameters.control.skip = Tensor::full({}, 1, kDouble);
  cpu::adam_step(parameters.slots, {0.9, 0.999, 1e-8, 0, false}, parameters.control);
  cpu::sgd_step(parameters.slots, {0.9, 0, 0, false}, parameters.control);
  CHECK(counts() == std::vector<std::int64_t>{1, 2, 1});
  CHECK(second.parameter.to_vector<float>() == before);
  parameters.control.skip.fill_(0);
  cpu::sgd_step(parameters.slots, {0, 0, 0, false}, parameters.control);
  CHECK(counts() == std::vector<std::int64_t>{2, 3, 2});
  CHECK(second.parameter.to_vector<float>() != before);
}

TEST_CASE("the norm of a list is summed in f64 for all dtypes, and clips if it is too large") {
  const double big = 1e25;  // its square overflows f32
  const std::vector<Tensor> tensors{Tensor::full({9001}, 0.5, {.dtype = DType::f16}), Tensor::full({0}, 1),
                                    Tensor::full({4}, 3, {.dtype = DType::bf16}), Tensor::full({2}, 2, kDouble),
                                    Tensor::full({7}, -1)};
  const double expected = std::sqrt(9001 * 0.25 + 4 * 9 + 2 * 4 + 7);
  const Tensor norm = Tensor::full({}, NAN, kDouble);
  cpu::clip_norm(tensors, expected, false, norm);  // max_norm/(norm + 1e-6) is just below 1
  CHECK(norm.item() == doctest::Approx(expected).epsilon(kDoubleRounding));
  CHECK(tensors[3].to_vector<double>()[1] == doctest::Approx(2 * expected / (expected + 1e-6)).epsilon(kDoubleRounding));
  CHECK(tensors[0].to(DType::f64).to_vector<double>()[9000] == 0.5);
  cpu::clip_norm(tensors, expected / 4, false, norm);
  CHECK(tensors[0].to(DType::f64).to_vector<double>()[9000] == 0.125);
  CHECK(tensors[4].to_vector<float>()[6] == doctest::Approx(-0.25).epsilon(kFloatRounding));

  const std::vector<Tensor> large{Tensor::full({4}, big)};
  cpu::clip_norm(large, 1, true, norm);
  CHECK(norm.item() == doctest::Approx(2 * static_cast<double>(static_cast<float>(big))).epsilon(kDoubleRounding));
  CHECK(large[0].to_vector<float>()[0] == doctest::Approx(0.5).epsilon(kFloatRounding));
}

TEST_CASE("a norm that is not finite scales, unless an option says otherwise") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Tensor> tensors{Tensor::from_vector<double>({1, infinity})};
  const Tensor norm = Tensor::full({}, 0, kDouble);
  cpu::clip_norm(tensors, 1, true, norm);
  CHECK(norm.item() == infinity);
  CHECK(tensors[0].to_vector<double>()[0] == 1);
  cpu::clip_norm(tensors, 1, false, norm);
  CHECK(tensors[0].to_vector<double>()[0] == 0);
  cpu::clip_norm(tensors, 1, false, norm);
  CHECK(std::isnan(tensors[0].to_vector<double>()[0]));
}

TEST_CASE("unscaling divides and finds what is not finite, even where dividing hides it") {
  const Tensor scale = Tensor::full({}, 1024, kDouble), found = Tensor::full({}, 0, kDouble);
  std::vector<Tensor> tensors{Tensor::full({40000}, 2048), Tensor::full({3}, 512, {.dtype = DType::bf16})};
  cpu::unscale(tensors, scale, found);
  CHECK(found.item() == 0);
  CHECK(tensors[0].to_vector<float>().back() == 2);
  CHECK(tensors[1].to(DType::f64).to_vector<double>()[2] == 0.5);
  tensors.push_back(Tensor::from_vector<float>({1, NAN}));
  cpu::unscale(tensors, scale, found);
  CHECK(found.item() == 1);
  tensors.pop_back();
  cpu::unscale(tensors, scale, found);
  CHECK(found.item() == 1);  // only update_loss_scale clears it
}

TEST_CASE("a list is copied, dtypes mixed and sizes of 0 and many") {
  const Tensor a = random_f64({70000}, 1).to(DType::f32), b = random_f64({3}, 2).to(DType::f16), c = Tensor::zeros({0});
  const std::vector<Tensor> in{a, b, c},
      out{Tensor::zeros({70000}), Tensor::zeros({3}, {.dtype = DType::f16}), Tensor::zeros({0})};
  cpu::copy_list(out, in);
  for (std::size_t i = 0; i < in.size(); ++i)
    CHECK(out[i].to(DType::f64).to_vector<double>() == in[i].to(DType::f64).to_vector<double>());
}

TEST_CASE("a list of f32 is copied to 16 bits, rounded") {
  const Tensor a = random_f64({70000}, 1).to(DType::f32), b = random_f64({3}, 2).to(DType::f32);
  const std::vector<Tensor> in{a, b},
      out{Tensor::zeros({70000}, {.dtype = DType::bf16}), Tensor::zeros({3}, {.dtype = DType::f16})};
  cpu::copy_list(out, in);
  for (std::size_t i = 0; i < in.size(); ++i) CHECK(max_difference(out[i], in[i].to(out[i].dtype())) == 0);
}

TEST_CASE("averages follow by the decay, or by the ramp while that is smaller") {
  const Tensor a = Tensor::full({50000}, 1), b = Tensor::full({3}, 2, {.dtype = DType::f16});
  const Tensor x = Tensor::full({50000}, 11), y = Tensor::full({3}, 4, {.dtype = DType::f16});
  Tensor updates = Tensor::zeros({}, {.dtype = DType::i64});
  const std::vector<Tensor> averages{a, b}, values{x, y};
  cpu::average(averages, values, {.decay = 0.5, .ramp = true}, updates);
  CHECK(a.to_vector<float>()[49999] == doctest::Approx(10).epsilon(kFloatRounding));
  CHECK(b.to(DType::f64).to_vector<double>()[0] == doctest::Approx(3.8).epsilon(kHalfRounding));
  cpu::average(averages, values, {.decay = 0.5, .ramp = false}, updates);
  CHECK(a.to_vector<float>()[0] == doctest::Approx(10.5).epsilon(kFloatRounding));
  CHECK(updates.item<std::int64_t>() == 2);
  updates.fill_(8);
  cpu::average(averages, values, {.decay = 0.75, .ramp = true}, updates);  // the ramp is at 9/18
  CHECK(a.to_vector<float>()[0] == doctest::Approx(10.75).epsilon(kFloatRounding));
}

TEST_CASE("a loss scale backs off after a bad step and grows after enough good ones, as long as f32 can hold it") {
  const Tensor state = Tensor::from_vector<double>({8, 0, 0}), first = Tensor::full({}, 0, kDouble), second = first.clone();
  const std::vector<Tensor> found{first, second};
  const LossScaleStep step{2, 0.5, 3};
  const auto after = [&](double bad) {
    second.data<double>()[0] = bad;
    cpu::update_loss_scale(state, found, step);
    CHECK(second.item() == 0);
    return state.to_vector<double>();
  };
  CHECK(after(0) == std::vector<double>{8, 1, 0});
  CHECK(after(0) == std::vector<double>{8, 2, 0});
  CHECK(after(1) == std::vector<double>{4, 0, 1});
  CHECK(after(0) == std::vector<double>{4, 1, 1});
  CHECK(after(0) == std::vector<double>{4, 2, 1});
  CHECK(after(0) == std::vector<double>{8, 0, 1});
  state.data<double>()[0] = 0x1p127;
  state.data<double>()[1] = 2;
  CHECK(after(0) == std::vector<double>{0x1p127, 0, 1});
}

TEST_CASE("lists of integers are refused") {
  const std::vector<Tensor> tensors{Tensor::zeros({2}, {.dtype = DType::i64})};
  const Tensor norm = Tensor::full({}, 0, kDouble);
  CHECK(error_of<DTypeError>([&] {
          cpu::clip_norm(tensors, 1, false, norm);
          return 0;
        }) == "clip_norm: expected floating-point tensors, got i64");
}
