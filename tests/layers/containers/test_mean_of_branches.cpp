#include "layers/containers/mean_of_branches.hpp"

#include <doctest/doctest.h>

#include "autograd/no_grad.hpp"
#include "layers/activations.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "ops/elementwise.hpp"
#include "support/helpers.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "tensor/memory.hpp"

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

TEST_CASE("mean of branches in pieces: branches wait for the one of the longest latency") {
  manual_seed(4);
  const auto causal = [](std::int64_t kernel_size) {
    return Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = kernel_size, .padding = {kernel_size - 1, 0}});
  };
  const auto block = [](std::int64_t kernel_size, std::int64_t dilation) {
    return Residual(LeakyReLU(0.1), Conv1d({.in_channels = 2,
                                            .out_channels = 2,
                                            .kernel_size = kernel_size,
                                            .padding = dilation * (kernel_size / 2),
                                            .dilation = dilation}));
  };
  MeanOfBranches net(block(3, 1), causal(5), block(11, 2), LeakyReLU(0.1));
  check_stream(net, {2, 2, 70});
  check_stream(net, {1, 2, 1});
  CHECK(receptive_field(net).left == 10);
  CHECK(receptive_field(net).right == 10);
  MeanOfBranches one(branch(3));
  check_stream(one, {2, 2, 45});

  const auto up = [](std::int64_t kernel_size) {
    return ConvTranspose1d(
        {.in_channels = 2, .out_channels = 2, .kernel_size = kernel_size, .stride = 4, .padding = (kernel_size - 4) / 2});
  };
  Sequential decoder(branch(7), MeanOfBranches(up(4), Sequential(up(8), block(3, 9)), up(16)),
                     MeanOfBranches(Sequential(block(3, 1), block(3, 3)), Sequential(block(7, 1), block(7, 5))), branch(3));
  check_stream(decoder, {2, 2, 60});
  CHECK(Stream(decoder).rate().up == 4);
}

TEST_CASE("mean of branches in pieces: what it refuses, and a second stream") {
  MeanOfBranches rates(branch(3), ConvTranspose1d({.in_channels = 2, .out_channels = 2, .kernel_size = 2, .stride = 2}));
  CHECK(error_of<NotImplemented>([&] { return Stream(rates).latency(); }) ==
        "stream: MeanOfBranches: expected branches of one rate, got 1/1 of branch 0 and 2/1 of branch 1");
  CHECK_THROWS_WITH_AS((void)MeanOfBranches().make_stream(), "MeanOfBranches: expected at least one branch, got none",
                       ShapeError);
  const Conv1d shorter({.in_channels = 2, .out_channels = 2, .kernel_size = 3});
  MeanOfBranches lengths(branch(3), shorter);
  Stream ends(lengths);
  CHECK(ends.push(random_f64({1, 2, 9}).to(DType::f32)).size(2) == 7);
  CHECK(error_of<ShapeError>([&] { return ends.finish(); }) ==
        "MeanOfBranches: expected branches of one shape, got (1, 2, 2) from branch 0 and (1, 2, 0) from branch 1");

  MeanOfBranches net(branch(3), branch(9));
  Stream stream(net);
  const Tensor x = random_f64({1, 2, 20}, 8).to(DType::f32);
  const auto all = [&] { return cat({stream.push(x), stream.finish()}, 2); };
  const Tensor first = all();
  stream.reset();
  (void)stream.push(random_f64({1, 2, 7}).to(DType::f32));
  stream.reset();
  CHECK(max_difference(all(), first) == 0);
}

TEST_CASE("mean of branches: an activation that follows is computed in the same pass, with the same bits and gradients") {
  manual_seed(1);
  const auto of = [](int count) {
    MeanOfBranches mean;
    for (int i = 0; i < count; ++i) mean.push_back(branch(2 * i + 1));
    return mean;
  };
  const auto gradients = [](Sequential& net, const Tensor& y, const Tensor& x) {
    net.zero_grad();
    (y * 0.5).backward(Tensor::ones(y.shape(), {y.dtype(), y.device()}));
    std::vector<std::vector<double>> all{values(y), values(x.grad())};
    for (const Tensor& parameter : net.parameters()) all.push_back(values(parameter.grad()));
    return all;
  };
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const int branches : {1, 2, 3, 4, 5})
      for (const std::int64_t length : {1, 37, 4096}) {
        CAPTURE(dtype);
        CAPTURE(branches);
        CAPTURE(length);
        Sequential leaky(of(branches), LeakyReLU(0.1)), relu(of(branches), ReLU()), tanh(of(branches), Tanh());
        for (Sequential* const net : {&leaky, &relu, &tanh}) {
          net->to(dtype);
          const auto leaf = [&] {
            Tensor x = random_f64({2, 2, length}).to(dtype);
            x.set_requires_grad(true);
            return x;
          };
          const Tensor x = leaf(), other = leaf();
          const auto apart = gradients(*net, (*net)[1]((*net)[0](other)), other), together = gradients(*net, (*net)(x), x);
          CHECK(together == apart);
          const NoGradGuard no_grad;
          CHECK(values((*net)(x)) == apart[0]);
        }
      }
}

TEST_CASE("mean of branches: the input's memory is free once the last branch has read it") {
  struct Watch : Module {
    std::size_t* live;
    explicit Watch(std::size_t* live_) : live(live_) {}
    void visit(Visitor&) override {}
    Tensor forward(const Tensor& x) override {
      *live = memory_stats(x.device()).live_bytes;
      return x + 1;
    }
  };
  const NoGradGuard no_grad;
  const auto live_at_last = [](bool is_last) {
    std::size_t live = 0;
    Sequential watched(LeakyReLU(0.5), Watch(&live));
    MeanOfBranches mean;
    if (is_last) mean.push_back(LeakyReLU(0.5));
    mean.push_back(std::move(watched));
    if (!is_last) mean.push_back(LeakyReLU(0.5));
    Sequential net(LeakyReLU(0.5), std::move(mean));
    const Tensor x = Tensor::ones({1, 1, 1 << 20});
    (void)net(x);
    return live;
  };
  CHECK(live_at_last(true) == live_at_last(false));  // one result more, the input less
}
