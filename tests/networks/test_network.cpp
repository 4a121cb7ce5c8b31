#include "networks/network.hpp"

#include <doctest/doctest.h>

#include "layers/conv1d.hpp"
#include "layers/weight_norm.hpp"
#include "support/helpers.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

class Plain : public Network {
 public:
  explicit Plain(NetworkInput input = NetworkInput::latent) : Plain({.input = input, .rows = 3, .samples_per_frame = 1}) {}
  explicit Plain(const NetworkFormat& format) : Network(format, layers()) {}

 private:
  static Sequential layers() {
    return Sequential(named("first", Conv1d({.in_channels = 3, .out_channels = 2, .kernel_size = 3, .padding = 1})),
                      named("last", Conv1d({.in_channels = 2, .out_channels = 1, .kernel_size = 1})));
  }
  [[nodiscard]] bool is_unused(std::string_view key) const override { return key == "encoder.weight"; }
  [[nodiscard]] std::string own_name(std::string_view key) const override {
    return std::string(key == "final.bias" ? "last.bias" : key);
  }
};

}  // namespace

TEST_CASE("keys are those of its modules") {
  Plain net;
  NamedTensors state = net.state_dict();
  CHECK(state.size() == 4);
  CHECK(state.front().first == "first.weight");
}

TEST_CASE("a checkpoint with weight norm is folded, and unused keys are passed over") {
  manual_seed(2);
  Plain source;
  Plain target;
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 3, 9}).to(DType::f32);
  const Tensor expected = source(x);
  weight_norm(source);
  NamedTensors state = source.state_dict();
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  state.emplace_back("encoder.weight", Tensor::ones({1}));
  target.load_published(state);
  CHECK(relative_difference(f64_values(target(x)), f64_values(expected)) < 1e-6);
  state.emplace_back("decoder.weight", Tensor::ones({1}));
  CHECK(error_of<Error>([&] { return target.load_published(state), 0; }).find("decoder.weight") != std::string::npos);
}

TEST_CASE("a key in another spelling is loaded") {
  Plain source;
  Plain target;
  NamedTensors state;
  for (const auto& [name, tensor] : source.state_dict())
    state.emplace_back(name == "last.bias" ? "final.bias" : name, tensor.clone());
  target.load_published(state);
  CHECK(max_difference(target.state_dict().back().second, source.state_dict().back().second) == 0);
}

TEST_CASE("weight norm is folded in f64") {
  manual_seed(5);
  Plain net;
  net.to(DType::f64);
  const Tensor v = random_f64({2, 3, 3}, 3).to(DType::f32), g = Tensor::full({2, 1, 1}, 1.5);
  NamedTensors state = net.state_dict();
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  state.erase(state.begin());
  state.emplace_back("first.parametrizations.weight.original0", g);
  state.emplace_back("first.parametrizations.weight.original1", v);
  net.load_published(state);
  const std::vector<double> values = v.to(DType::f64).to_vector<double>();
  std::vector<double> expected(values.size());
  for (std::size_t row = 0; row < 2; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < 9; ++i) sum += values[9 * row + i] * values[9 * row + i];
    for (std::size_t i = 0; i < 9; ++i) expected[9 * row + i] = 1.5 * values[9 * row + i] / std::sqrt(sum);
  }
  CHECK(relative_difference(net.state_dict().front().second.to_vector<double>(), expected) < 1e-15);
}

TEST_CASE("inputs that do not fit are refused in words") {
  Plain net;
  CHECK(error_of<ShapeError>([&] {
          return net(Tensor::ones({1, 4, 5}));
        }) == "network: expected an input (N, 3, frames >= 1), got (1, 4, 5)");
  CHECK(error_of<ShapeError>([&] { return net(Tensor::ones({1, 3, 0})); }).find("(1, 3, 0)") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return net(Tensor::ones({3, 5})); }).find("(3, 5)") != std::string::npos);
  CHECK(error_of<DTypeError>([&] {
          return net(Tensor::ones({1, 3, 5}, {DType::i64}));
        }).find("floating-point") != std::string::npos);
  Plain codec(NetworkInput::codes);
  CHECK(error_of<DTypeError>([&] { return codec(Tensor::ones({1, 3, 5})); }).find("codes, i64") != std::string::npos);
}

TEST_CASE("a format may allow fewer rows, and ask for a multiple of frames") {
  Plain net(NetworkFormat{.input = NetworkInput::latent, .rows = 3, .least_rows = 2, .frame_multiple = 4});
  CHECK(net(Tensor::ones({1, 3, 8})).shape() == Shape{1, 1, 8});
  CHECK(error_of<ShapeError>([&] {
          return net(Tensor::ones({1, 1, 8}));
        }) == "network: expected an input (N, 2 to 3, frames >= 1), got (1, 1, 8)");
  CHECK(error_of<ShapeError>([&] { return net(Tensor::ones({1, 4, 8})); }).find("(N, 2 to 3,") != std::string::npos);
  CHECK(error_of<ShapeError>([&] {
          return net(Tensor::ones({1, 2, 8}));
        }).find("network: ") == std::string::npos);  // the error names the layer
  CHECK(error_of<ShapeError>([&] {
          return net(Tensor::ones({1, 3, 6}));
        }) == "network: expected a multiple of 4 frames, got 6");
}

TEST_CASE("a network streams as its modules do") {
  manual_seed(6);
  Plain net;
  check_stream(net, {2, 3, 17});
}
