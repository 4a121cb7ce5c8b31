#pragma once
// Checks that the tests of published networks share.

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/autocast.hpp"
#include "autograd/no_grad.hpp"
#include "io/checkpoint.hpp"
#include "layers/losses.hpp"
#include "layers/module.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "optim/adam.hpp"
#include "support/helpers.hpp"
#include "support/stream.hpp"
#include "support/temporary_directory.hpp"
#include "support/tolerance.hpp"
#include "tensor/random.hpp"

namespace polyphase::testing {

/// The tensors of a module by their names.
class StateOf {
 public:
  explicit StateOf(Module& module) : state_(module.state_dict()) {}
  [[nodiscard]] bool has(const std::string& name) const { return find(name) != nullptr; }
  [[nodiscard]] const Tensor& operator[](const std::string& name) const {
    const Tensor* found = find(name);
    require<Error>(found != nullptr, "no tensor ", name);
    return *found;
  }
  [[nodiscard]] std::size_t size() const { return state_.size(); }

 private:
  [[nodiscard]] const Tensor* find(const std::string& name) const {
    for (const auto& [key, tensor] : state_)
      if (key == name) return &tensor;
    return nullptr;
  }
  NamedTensors state_;
};

/// Codes in [0, size) that depend on `seed` alone.
inline Tensor random_codes(const Shape& shape, std::int64_t size, std::uint64_t seed = 1) {
  Generator generator(seed);
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t& value : values) value = generator.integer(size);
  return Tensor::from_vector(values, shape, default_device());
}

/// A code outside the codebooks is an error that names it; on a GPU, which reports it later, nothing is checked.
inline void check_refuses_code(Module& net, const Shape& shape, std::int64_t code) {
  if (default_device().is_cuda()) return;
  const std::string error =
      error_of<ShapeError>([&] { return net(Tensor::full(shape, static_cast<double>(code), {.dtype = DType::i64})); });
  CHECK_MESSAGE(error.find(concat("got ", code)) != std::string::npos, error);
}

/// x + sin(alpha x)^2/(alpha + 1e-9), alpha (C).
inline Tensor plain_snake(const Tensor& x, const Tensor& alpha) {
  const Tensor a = alpha.reshape({-1, 1});
  return x + square(sin(x * a)) / (a + 1e-9);
}

/// Compares the network in 16 bits with f64, relative to the largest number.
inline void check_halves(Module& net, const Tensor& input) {
  const NoGradGuard no_grad;
  net.eval();
  net.to(DType::f64);
  const bool is_codes = input.dtype() == DType::i64;
  const std::vector<double> expected = f64_values(net(is_codes ? input : input.to(DType::f64)));
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(name_of(dtype));
    net.to(DType::f64);
    net.to(dtype);
    const Tensor y = net(is_codes ? input : input.to(dtype));
    CHECK(y.dtype() == dtype);
    CHECK(relative_difference(f64_values(y), expected) < (dtype == DType::f16 ? kHalfNetwork : kBFloat16Network));
  }
}

/// A step of training in 16 bits under a guard gives every parameter a finite gradient.
inline void check_mixed_precision(Module& net, const Tensor& input, const Tensor& target) {
  net.train();
  const AutocastGuard guard(DType::bf16);
  mse_loss(net(input), target).backward();
  for (const auto& entry : net.named_parameters()) {
    const Tensor grad = entry.second.grad();
    REQUIRE_MESSAGE(grad.defined(), entry.first);
    CHECK_MESSAGE(std::isfinite(sum(grad).item()), entry.first);
  }
}

/// Training: the loss falls, and training goes on from a checkpoint with the same bits.
inline void check_fine_tuning(const std::function<std::unique_ptr<Module>()>& make, const Tensor& input, const Tensor& target) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("run.safetensors");
  Generator generator(8);
  const GeneratorGuard guard(generator);
  const auto train = [&](Module& net, Adam& optimizer, int steps) {
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      optimizer.zero_grad();
      const Tensor loss = mse_loss(net(input), target);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item());
    }
    return losses;
  };
  const std::unique_ptr<Module> net = make();
  Adam optimizer(net->parameters(), {.learning_rate = 5e-3});
  const std::vector<double> first = train(*net, optimizer, 20);
  save_checkpoint(path, {.model = net->state_dict(),
                         .states = {{"optimizer", optimizer.state()}},
                         .generators = {{"default", generator.state()}}});
  const std::vector<double> rest = train(*net, optimizer, 10);
  CHECK(rest.back() < 0.8 * first.front());

  const std::unique_ptr<Module> again = make();
  Adam resumed(again->parameters(), {.learning_rate = 5e-3});
  const Checkpoint saved = load_checkpoint(path);
  again->load_state_dict(saved.model);
  resumed.load_state(saved.state("optimizer"));
  generator.set_state(saved.generator("default"));
  CHECK(train(*again, resumed, 10) == rest);
}

}  // namespace polyphase::testing
