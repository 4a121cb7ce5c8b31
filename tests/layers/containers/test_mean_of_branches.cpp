#include "layers/containers/mean_of_branches.hpp"

#include <doctest/doctest.h>

#include "layers/activations.hpp"
#include "layers/conv1d.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

Conv1d branch(std::int64_t kernel_size) {
  return Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = kernel_size, .padding = kernel_size / 2});
}

MeanOfBranches three() { return MeanOfBranches(branch(3), LeakyReLU(0.1), branch(7)); }

std::vector<double> values(const Tensor& tensor) { return tensor.detach().to(DType::f64).to_vector<double>(); }

template <class T>
void check_bits(DType dtype) {
  MeanOfBranches net = three();
  net.to(dtype);
  const Tensor x = random_f64({2, 2, 37}).to(dtype);
  const std::vector<T> a = net[0](x).detach().to_vector<T>();
  const std::vector<T> b = net[1](x).detach().to_vector<T>();
  const std::vector<T> c = net[2](x).detach().to_vector<T>();
  const std::vector<T> y = net(x).detach().to_vector<T>();
  bool differs_from_product = false;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const T total = a[i] + b[i] + c[i];
    CHECK(y[i] == total / T{3});
    differs_from_product = differs_from_product || y[i] != total * (T{1} / T{3});
  }
  CHECK(differs_from_product);
}

}  // namespace

TEST_CASE("mean of branches: summed in order and divided, bit for bit") {
  manual_seed(1);
  check_bits<float>(DType::f32);
  check_bits<double>(DType::f64);
}

TEST_CASE("mean of branches: 16-bit types round every sum and the quotient") {
  manual_seed(1);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    MeanOfBranches net = three();
    net.to(dtype);
    const Tensor x = random_f64({2, 2, 37}).to(dtype);
    const Tensor n = Tensor::full({}, 3, {.dtype = dtype});
    CHECK(values(net(x)) == values((net[0](x) + net[1](x) + net[2](x)) / n));
  }
}

TEST_CASE("mean of branches: gradients, one branch, empty input") {
  manual_seed(1);
  MeanOfBranches net = three();
  CHECK(layer_gradcheck(net, {2, 2, 9}) == "");
  MeanOfBranches one(LeakyReLU(0.5));
  CHECK(values(one(Tensor::from_vector<double>({-2, 4}))) == std::vector<double>{-1, 4});
  CHECK(net(random_f64({0, 2, 9})).shape() == Shape{0, 2, 9});
}

TEST_CASE("mean of branches: names of the children") {
  MeanOfBranches net(named("resblocks.3", branch(3)), named("resblocks.4", branch(7)));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"resblocks.3.weight", "resblocks.3.bias", "resblocks.4.weight", "resblocks.4.bias"});
  CHECK(three().state_dict().back().first == "2.bias");
}

TEST_CASE("mean of branches: errors") {
  MeanOfBranches none;
  CHECK(error_of<ShapeError>([&] { return none(random_f64({2})); }) ==
        "MeanOfBranches: expected at least one branch, got none");
  MeanOfBranches differ(LeakyReLU(), Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3}));
  CHECK(error_of<ShapeError>([&] {
          return differ(random_f64({1, 2, 9}).to(DType::f32));
        }) == "MeanOfBranches: expected branches of one shape, got (1, 2, 9) from branch 0 and (1, 2, 7) from branch 1");
}
