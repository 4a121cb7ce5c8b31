#include "layers/weight.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "support/tolerance.hpp"
#include "tensor/random.hpp"

using namespace polyphase;

namespace {

class Names : public Visitor {
 public:
  void parameter(std::string_view name, Tensor&) override { found.emplace_back(name); }
  void buffer(std::string_view, Tensor&) override { FAIL("a weight has no buffer"); }
  void module(std::string_view, Module&) override { FAIL("a weight has no child"); }
  std::vector<std::string> found;
};

std::vector<std::string> names_of(Weight& weight, Tensor bias) {
  Names names;
  weight.visit(names, bias);
  return names.found;
}

struct Layer : WeightedLayer {
  Layer(const Shape& weight, std::int64_t bias) { initialise(weight, bias, {.dtype = DType::f64}); }
  Tensor forward(const Tensor& x) override { return x * weight(); }
};

}  // namespace

TEST_CASE("weight: g and v of a plain weight, norm over all dimensions but the first") {
  Weight weight(Tensor::from_vector<double>({3, 0, 0, 4, 5, 12, 0, 0}, {2, 2, 2}).set_requires_grad(true));
  weight.normalise();
  REQUIRE(weight.is_normalised());
  Tensor none;
  struct Values : Visitor {
    void parameter(std::string_view name, Tensor& t) override { (name == "weight_g" ? g : v) = t; }
    void buffer(std::string_view, Tensor&) override {}
    void module(std::string_view, Module&) override {}
    Tensor g, v;
  } values;
  weight.visit(values, none);
  CHECK(values.g.shape() == Shape{2, 1, 1});
  CHECK(values.g.to_vector<double>() == std::vector<double>{5, 13});
  CHECK(values.v.to_vector<double>() == std::vector<double>{3, 0, 0, 4, 5, 12, 0, 0});
  CHECK(values.g.requires_grad());
  CHECK(values.v.requires_grad());
}

TEST_CASE("weight: a doubled g doubles w, a doubled v changes nothing") {
  Weight weight(Tensor::from_vector<double>({3, 4, 6, 8}, {2, 2}));
  weight.normalise();
  const Tensor before = weight.get();
  struct Scale : Visitor {
    void parameter(std::string_view name, Tensor& t) override { t = t * (name == "weight_g" ? 2.0 : 8.0); }
    void buffer(std::string_view, Tensor&) override {}
    void module(std::string_view, Module&) override {}
  } scale;
  Tensor none;
  weight.visit(scale, none);
  CHECK(allclose(weight.get(), before * 2.0, testing::kDoubleRounding, 0));
}

TEST_CASE("weight: names and order are PyTorch's") {
  Weight weight(Tensor::ones({2, 3}));
  CHECK(names_of(weight, Tensor::ones({2})) == std::vector<std::string>{"weight", "bias"});
  CHECK(names_of(weight, {}) == std::vector<std::string>{"weight"});
  weight.normalise();
  CHECK(names_of(weight, Tensor::ones({2})) == std::vector<std::string>{"bias", "weight_g", "weight_v"});
  CHECK(names_of(weight, {}) == std::vector<std::string>{"weight_g", "weight_v"});
}

TEST_CASE("weight: folding gives the tensor that forward computed, bit for bit") {
  Weight weight(Tensor::randn({5, 3, 7}).set_requires_grad(true));
  weight.normalise();
  const auto unfolded = weight.get().to_vector<float>();
  weight.fold();
  CHECK_FALSE(weight.is_normalised());
  CHECK(weight.get().to_vector<float>() == unfolded);
  CHECK(weight.get().is_leaf());
  CHECK(weight.get().requires_grad());
}

TEST_CASE("weight: the normalised weight is the plain one up to rounding, and a frozen one stays frozen") {
  const Tensor plain = Tensor::randn({4, 6});
  Weight weight(plain);
  weight.normalise();
  CHECK(allclose(weight.get(), plain, testing::kFloatRounding, 0));
  CHECK_FALSE(weight.get().requires_grad());
  weight.normalise();  // a second call changes nothing
  CHECK(weight.is_normalised());
  weight.fold();
  CHECK_FALSE(weight.get().requires_grad());
}

TEST_CASE("weighted layer: uniform within 1/sqrt(fan_in), fan_in from all dimensions but the first") {
  Generator generator(5);
  const GeneratorGuard guard(generator);
  const Layer layer({200, 10, 5}, 4000);
  const double bound = 1 / std::sqrt(50.0);
  for (const Tensor& t : {layer.weight(), layer.bias()}) {
    const double n = static_cast<double>(t.numel());
    CHECK(t.requires_grad());
    CHECK(max(t).item() < bound);
    CHECK(min(t).item() >= -bound);
    CHECK(max(t).item() > 0.99 * bound);
    CHECK(min(t).item() < -0.99 * bound);
    // Mean and variance of a uniform distribution, within five standard errors.
    CHECK(std::abs(mean(t).item()) < 5 * bound / std::sqrt(3 * n));
    const double variance = bound * bound / 3;
    CHECK(std::abs(mean(square(t)).item() - variance) < 5 * bound * bound * std::sqrt(4.0 / 45 / n));
  }
}

TEST_CASE("weighted layer: the same seed gives the same weights, another seed others") {
  const auto weights = [](std::uint64_t seed) {
    Generator generator(seed);
    const GeneratorGuard guard(generator);
    return Layer({3, 4}, 2).weight().to_vector<double>();
  };
  CHECK(weights(1) == weights(1));
  CHECK(weights(1) != weights(2));
}

TEST_CASE("weighted layer: no bias") {
  Layer layer({3, 4}, 0);
  CHECK_FALSE(layer.bias().defined());
  CHECK(layer.parameters().size() == 1);
}
