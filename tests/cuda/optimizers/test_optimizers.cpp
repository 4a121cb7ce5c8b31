#include "cuda/optimizers/optimizers.hpp"

#include <doctest/doctest.h>

#include <array>

#include "support/device.hpp"
#include "support/helpers.hpp"
#include "support/skip.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

// The same parameters on the host and on the GPU: odd sizes, some misaligned, more than fit into one launch.
struct Twins {
  std::vector<OptimizerSlot> host, gpu;
  StepControl host_control, gpu_control;
  Twins(DType dtype, DType host_dtype, double learning_rate, std::int64_t steps = 0) {
    const Tensor rate = Tensor::full({}, learning_rate, {.dtype = DType::f64});
    const Tensor counts = Tensor::full({201}, static_cast<double>(steps), {.dtype = DType::i64});
    host_control = {rate, counts, {}, 200};
    gpu_control = {mirrored(rate), mirrored(counts), {}, 200};
    for (std::int64_t i = 0; i < 200; ++i) {
      const std::int64_t size = i == 7 ? 20011 : i == 8 ? 0 : i == 9 ? 4096 : 1 + i * 37 % 501;
      const auto make = [&](std::uint64_t seed) {
        return random_f64({size + i % 2}, seed).to(dtype).to(host_dtype).slice(0, i % 2, size + i % 2);
      };
      const auto seed = static_cast<std::uint64_t>(i);
      const OptimizerSlot slot{make(seed), make(seed + 1000), Tensor::zeros({size}, {.dtype = host_dtype}),
                               Tensor::zeros({size}, {.dtype = host_dtype}), i};
      host.push_back(slot);
      const auto there = [&](const Tensor& t) { return mirrored(t.storage().bytes() == 0 ? t : t.to(dtype).clone()); };
      gpu.push_back({dtype == host_dtype ? mirrored(slot.parameter) : there(slot.parameter),
                     dtype == host_dtype ? mirrored(slot.grad) : there(slot.grad), there(slot.momentum), there(slot.second),
                     i});
    }
  }
  [[nodiscard]] double worst() const {
    double worst = 0;
    for (std::size_t i = 0; i < host.size(); ++i)
      for (const auto member : kMembers) worst = worse(worst, worst_difference(host[i].*member, gpu[i].*member));
    return worst;
  }
  // Rounds the host's numbers to the dtype, as the GPU does after every step.
  void round_host(DType dtype) const {
    for (const OptimizerSlot& slot : host)
      for (const auto member : kMembers) Tensor(slot.*member).copy_((slot.*member).to(dtype));
  }
  // The share of elements of `member` that differ.
  [[nodiscard]] double share_apart(Tensor OptimizerSlot::*member) const {
    std::size_t apart = 0, all = 0;
    for (std::size_t i = 0; i < host.size(); ++i) {
      const auto a = (host[i].*member).to(DType::f64).to_vector<double>();
      const auto b = (gpu[i].*member).cpu().to(DType::f64).to_vector<double>();
      for (std::size_t j = 0; j < a.size(); ++j) apart += a[j] == b[j] ? 0 : 1;
      all += a.size();
    }
    return static_cast<double>(apart) / static_cast<double>(all);
  }

  static constexpr std::array kMembers{&OptimizerSlot::parameter, &OptimizerSlot::momentum, &OptimizerSlot::second};
};

// In 16 bits about one of five roundings may differ: a difference of 2 units, which later steps carry on.
double bound_of(DType dtype) {
  return dtype == DType::f64   ? kDoubleRounding
         : dtype == DType::f32 ? kFloatRounding
         : dtype == DType::f16 ? 8 * kHalfUnit
                               : 8 * kBFloat16Unit;
}

void check_follows(const Twins& twins, DType dtype) {
  CHECK(twins.worst() <= bound_of(dtype));
  if (dtype != DType::f16 && dtype != DType::bf16) return;
  for (const auto member : Twins::kMembers) CHECK(twins.share_apart(member) <= kRoundedApart);
}

}  // namespace

TEST_CASE("five steps of SGD in every variant follow the host's") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  for (const DType dtype : kFloatTypes)
    for (const double momentum : {0.0, 0.9})
      for (const double decay : {0.0, 0.01})
        for (const bool nesterov : {false, true}) {
          CAPTURE(dtype);
          CAPTURE(momentum);
          CAPTURE(nesterov);
          const Twins twins(dtype, dtype == DType::f64 ? DType::f64 : DType::f32, 0.1);
          for (int step = 0; step < 5; ++step) {
            const SgdStep sgd{momentum, nesterov ? 0 : 0.1, decay, nesterov && momentum > 0};
            host().sgd_step(twins.host, sgd, twins.host_control);
            gpu().sgd_step(twins.gpu, sgd, twins.gpu_control);
            twins.round_host(dtype);
          }
          check_follows(twins, dtype);
        }
}

TEST_CASE("five steps of Adam and AdamW follow the host's") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  // Not f16: the squares of small gradients are below its range.
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const bool decoupled : {false, true})
      for (const std::int64_t before : {0, 999}) {
        CAPTURE(dtype);
        CAPTURE(decoupled);
        const Twins twins(dtype, dtype == DType::f64 ? DType::f64 : DType::f32, 1e-3, before);
        for (int step = 0; step < 5; ++step) {
          const AdamStep adam{0.9, 0.999, 1e-8, 0.01, decoupled};
          host().adam_step(twins.host, adam, twins.host_control);
          gpu().adam_step(twins.gpu, adam, twins.gpu_control);
          twins.round_host(dtype);
        }
        CHECK(different(twins.host_control.counts, twins.gpu_control.counts) == 0);
        check_follows(twins, dtype);
      }
}

TEST_CASE("a step counts what it updates, in any order and with gaps, and follows the learning rate on the device") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const Twins twins(DType::f32, DType::f32, 0.5);
  std::vector<OptimizerSlot> host_some, gpu_some;  // 0, 1, 3, 4, 6, ...: more runs than one launch can take
  for (std::size_t i = 0; i < twins.host.size(); ++i) {
    if (i % 3 == 2) continue;
    host_some.push_back(twins.host[i]);
    gpu_some.push_back(twins.gpu[i]);
  }
  const AdamStep adam{0.9, 0.999, 1e-8, 0.01, true};
  host().adam_step(host_some, adam, twins.host_control);
  gpu().adam_step(gpu_some, adam, twins.gpu_control);
  host().fill(twins.host_control.learning_rate, 0.125);
  gpu().fill(twins.gpu_control.learning_rate, 0.125);
  host().adam_step(twins.host, adam, twins.host_control);
  gpu().adam_step(twins.gpu, adam, twins.gpu_control);
  CHECK(different(twins.host_control.counts, twins.gpu_control.counts) == 0);
  CHECK(twins.host_control.counts.to_vector<std::int64_t>()[2] == 1);
  CHECK(twins.host_control.counts.to_vector<std::int64_t>()[200] == 2);
  CHECK(twins.worst() <= kFloatRounding);
}

TEST_CASE("a skipped step writes and counts nothing") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  Twins twins(DType::f32, DType::f32, 0.5, 3);
  const std::vector<float> before = twins.gpu[7].parameter.to_vector<float>();
  twins.gpu_control.skip = Tensor::full({}, 1, {.dtype = DType::f64, .device = Device::cuda()});
  gpu().adam_step(twins.gpu, {0.9, 0.999, 1e-8, 0.01, false}, twins.gpu_control);
  gpu().sgd_step(twins.gpu, {0.9, 0, 0.01, false}, twins.gpu_control);
  CHECK(different(twins.host_control.counts, twins.gpu_control.counts) == 0);
  CHECK(twins.worst() == 0);
  twins.gpu_control.skip.fill_(0);
  gpu().sgd_step(twins.gpu, {0.9, 0, 0.01, false}, twins.gpu_control);
  CHECK(twins.gpu_control.counts.to_vector<std::int64_t>() == std::vector<std::int64_t>(201, 4));
  CHECK(twins.gpu[7].parameter.to_vector<float>() != before);
}

TEST_CASE("mixed dtypes in one step; integers are refused and nothing has changed") {
  if (!has_gpu()) SKIP_TEST("no CUDA device");
  const TensorOptions f32{.device = Device::cuda()}, f64{.dtype = DType::f64, .device = Device::cuda()};
  std::vector<OptimizerSlot> slots{{Tensor::ones({3}, f32), Tensor::ones({3}, f32), {}, {}},
                                   {Tensor::ones({3}, f64), Tensor::ones({3}, f64), {}, {}}};
  slots[1].index = 1;
  const StepControl control{
      Tensor::full({}, 0.5, f64), Tensor::zeros({3}, {.dtype = DType::i64, .device = Device::cuda()}), {}};
  gpu().sgd_step(slots, {0, 0, 0, false}, control);
  CHECK(slots[0].parameter.to_vector<float>() == std::vector<float>(3, 0.5));
  CHECK(slots[1].parameter.to_vector<double>() == std::vector<double>(3, 0.5));
  const Tensor whole = Tensor::ones({3}, {.dtype = DType::i64, .device = Device::cuda()});
  slots.push_back({whole, whole, {}, {}, 2});
  CHECK(error_of<DTypeError>([&] {
          gpu().sgd_step(slots, {0, 0, 0, false}, control);
          return 0;
        }) == "sgd_step: expected floating-point parameters, got i64");
  CHECK(slots[0].parameter.to_vector<float>() == std::vector<float>(3, 0.5));
  CHECK(control.counts.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1, 0});
}
