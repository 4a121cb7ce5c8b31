#include "layers/norm.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "layers/containers/channels_last.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "support/layer_gradcheck.hpp"
#include "support/stream.hpp"
#include "support/tolerance.hpp"

using namespace polyphase;
using namespace polyphase::testing;

namespace {

doctest::Approx near(double value) { return doctest::Approx(value).epsilon(testing::kDoubleSum); }

BatchNorm1d batch_norm_f64(std::int64_t features, std::optional<double> momentum = 0.1) {
  return BatchNorm1d({.num_features = features, .momentum = momentum, .dtype = DType::f64});
}

Tensor state_of(Module& module, const std::string& name) {
  for (const auto& [key, tensor] : module.state_dict()) {
    if (key == name) return tensor;
  }
  FAIL("no " << name);
  return {};
}

// Sets a layer's counter of batches to a value for which no average exists.
struct CounterOfTwo : Visitor {
  void parameter(std::string_view, Tensor&) override {}
  void buffer(std::string_view name, Tensor& tensor) override {
    if (name == "num_batches_tracked") tensor = Tensor::zeros({2}, {.dtype = DType::i64});
  }
  void module(std::string_view, Module&) override {}
};

}  // namespace

TEST_CASE("group norm layer: names, initial values and formula") {
  GroupNorm layer({.num_groups = 2, .num_channels = 4, .dtype = DType::f64});
  const NamedTensors state = layer.state_dict();
  REQUIRE(state.size() == 2);
  CHECK(state[0].first == "weight");
  CHECK(state[0].second.to_vector<double>() == std::vector<double>(4, 1));
  CHECK(state[1].first == "bias");
  CHECK(state[1].second.to_vector<double>() == std::vector<double>(4, 0));
  layer.load_state_dict(
      {{"weight", Tensor::from_vector<double>({1, 2, 3, 4})}, {"bias", Tensor::from_vector<double>({0, 0, 0, 5})}});
  // Group 0 is 1 2 3 4: mean 2.5, variance 1.25; group 1 is -2 0 2 4: mean 1, variance 5.
  const auto y = layer(Tensor::from_vector<double>({1, 2, 3, 4, -2, 0, 2, 4}, {1, 4, 2})).to_vector<double>();
  const double s0 = std::sqrt(1.25 + 1e-5);
  const double s1 = std::sqrt(5 + 1e-5);
  CHECK(y[0] == near(-1.5 / s0));
  CHECK(y[3] == near(2 * 1.5 / s0));
  CHECK(y[4] == near(3 * -3 / s1));
  CHECK(y[7] == near(4 * 3 / s1 + 5));
}

TEST_CASE("group norm layer: gradients and errors") {
  GroupNorm layer({.num_groups = 2, .num_channels = 4});
  CHECK(testing::layer_gradcheck(layer, {2, 4, 3}) == "");
  CHECK(GroupNorm({.num_groups = 1, .num_channels = 2, .affine = false}).parameters().empty());
  CHECK_THROWS_WITH_AS(GroupNorm({.num_groups = 3, .num_channels = 4}),
                       "GroupNorm: expected num_channels divisible by num_groups, got num_channels=4 and num_groups=3",
                       ShapeError);
  CHECK_THROWS_WITH_AS(GroupNorm({.num_groups = 0, .num_channels = 4}), "GroupNorm: expected num_groups >= 1, got 0",
                       ShapeError);
  for (const bool affine : {true, false})
    CHECK_THROWS_WITH_AS(GroupNorm({.num_groups = 1, .num_channels = 4, .affine = affine, .dtype = DType::i64}),
                         "GroupNorm: expected a floating-point dtype, got i64", DTypeError);
  CHECK_THROWS_WITH_AS(GroupNorm({.num_groups = 1, .num_channels = 4, .epsilon = -1}),
                       "GroupNorm: expected epsilon >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS((void)layer(Tensor::ones({2, 6, 3})), "GroupNorm: expected x (N, C=4, ...), got (2, 6, 3)", ShapeError);
}

TEST_CASE("batch norm layer: keys in PyTorch's order, the counter an i64") {
  BatchNorm1d layer({.num_features = 3});
  const NamedTensors state = layer.state_dict();
  const std::vector<std::string> expected{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"};
  REQUIRE(state.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(state[i].first == expected[i]);
  CHECK(state[4].second.dtype() == DType::i64);
  CHECK(state[4].second.shape() == Shape{});
  CHECK(state[3].second.to_vector<float>() == std::vector<float>{1, 1, 1});
  layer.to(DType::f16);
  CHECK(state_of(layer, "running_var").dtype() == DType::f16);
  CHECK(state_of(layer, "num_batches_tracked").dtype() == DType::i64);
}

TEST_CASE("batch norm layer: training uses the batch and keeps running statistics, eval uses those") {
  BatchNorm1d layer = batch_norm_f64(1);
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 6}, {2, 1, 2});  // mean 3, biased variance 3.5, unbiased 14/3
  const auto y = layer(x).to_vector<double>();
  CHECK(y[0] == near(-2 / std::sqrt(3.5 + 1e-5)));
  CHECK(y[3] == near(3 / std::sqrt(3.5 + 1e-5)));
  const double mean = 0.1 * 3;
  const double variance = 0.9 + 0.1 * 14 / 3;
  CHECK(state_of(layer, "running_mean").item() == near(mean));
  CHECK(state_of(layer, "running_var").item() == near(variance));
  CHECK(state_of(layer, "num_batches_tracked").item<std::int64_t>() == 1);
  layer.eval();
  const auto z = layer(x).to_vector<double>();
  CHECK(z[3] == near((6 - mean) / std::sqrt(variance + 1e-5)));
  CHECK(state_of(layer, "num_batches_tracked").item<std::int64_t>() == 1);
  CHECK(state_of(layer, "running_mean").item() == near(mean));
}

TEST_CASE("batch norm layer: without momentum the running mean is the plain average of the batches") {
  BatchNorm1d layer = batch_norm_f64(1, std::nullopt);
  for (const double value : {1.0, 4.0, 10.0}) (void)layer(Tensor::from_vector<double>({value - 1, value + 1}, {2, 1}));
  CHECK(state_of(layer, "running_mean").item() == near(5));
  CHECK(state_of(layer, "running_var").item() == near(2));
  CHECK(state_of(layer, "num_batches_tracked").item<std::int64_t>() == 3);
  layer.eval();
  (void)layer(Tensor::ones({2, 1}, {.dtype = DType::f64}));
  CHECK(state_of(layer, "num_batches_tracked").item<std::int64_t>() == 3);
}

TEST_CASE("batch norm layer: the plain average of a layer that was moved away from its counter") {
  BatchNorm1d made_there({.num_features = 1, .momentum = std::nullopt});
  BatchNorm1d moved({.num_features = 1, .momentum = std::nullopt, .device = Device::cpu()});
  moved.to(default_device());
  for (BatchNorm1d* layer : {&made_there, &moved}) {
    for (const float value : {1.0f, 4.0f, 10.0f}) (void)(*layer)(Tensor::from_vector<float>({value - 1, value + 1}, {2, 1}));
    CHECK(state_of(*layer, "running_mean").item() == doctest::Approx(5));
    CHECK(state_of(*layer, "num_batches_tracked").item<std::int64_t>() == 3);
  }
}

TEST_CASE("batch norm layer: without tracking the batch's statistics are used in eval, too") {
  BatchNorm1d layer({.num_features = 1, .affine = false, .track_running_stats = false, .dtype = DType::f64});
  CHECK(layer.state_dict().empty());
  layer.eval();
  const auto y = layer(Tensor::from_vector<double>({1, 3}, {2, 1})).to_vector<double>();
  CHECK(y[1] == near(1 / std::sqrt(1 + 1e-5)));
}

TEST_CASE("batch norm layer: gradients in both modes") {
  BatchNorm1d layer = batch_norm_f64(2);
  CHECK(testing::layer_gradcheck(layer, {3, 2, 2}) == "");
  layer.eval();
  CHECK(testing::layer_gradcheck(layer, {3, 2}) == "");
}

TEST_CASE("batch norm layer: errors, after which the statistics are as before") {
  for (const bool affine : {true, false})
    CHECK_THROWS_WITH_AS(BatchNorm1d({.num_features = 1, .affine = affine, .dtype = DType::i64}),
                         "BatchNorm1d: expected a floating-point dtype, got i64", DTypeError);
  CHECK_THROWS_WITH_AS(BatchNorm1d({.num_features = 0}), "BatchNorm1d: expected num_features >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(BatchNorm1d({.num_features = 1, .momentum = 1.5}), "BatchNorm1d: expected momentum in [0, 1], got 1.5",
                       ShapeError);
  BatchNorm1d layer = batch_norm_f64(2);
  const Tensor one = Tensor::ones({1, 2}, {.dtype = DType::f64});
  CHECK_THROWS_AS((void)layer(one), ShapeError);
  CHECK(state_of(layer, "num_batches_tracked").item<std::int64_t>() == 0);
  CHECK(state_of(layer, "running_mean").to_vector<double>() == std::vector<double>{0, 0});
  BatchNorm1d averaging = batch_norm_f64(1, std::nullopt);
  CounterOfTwo spoils;
  averaging.visit(spoils);
  CHECK_THROWS_AS((void)averaging(Tensor::from_vector<double>({1, 3}, {2, 1})), ShapeError);
  CHECK(state_of(averaging, "num_batches_tracked").to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
  CHECK(state_of(averaging, "running_mean").item() == 0);
  CHECK_THROWS_WITH_AS((void)layer(Tensor::ones({4, 3, 5})), "BatchNorm1d: expected x (N, C=2) or (N, C=2, L), got (4, 3, 5)",
                       ShapeError);
}

TEST_CASE("layer norm, RMS norm and layer scale: names, initial values, formula, gradients") {
  LayerNorm layer({.normalized_shape = 2, .dtype = DType::f64});
  REQUIRE(layer.state_dict().size() == 2);
  CHECK(state_of(layer, "weight").to_vector<double>() == std::vector<double>(2, 1));
  CHECK(state_of(layer, "bias").to_vector<double>() == std::vector<double>(2, 0));
  CHECK(layer(Tensor::from_vector<double>({1, 3})).to_vector<double>()[1] == near(1 / std::sqrt(1 + 1e-5)));
  CHECK(LayerNorm({.normalized_shape = 2, .bias = false}).state_dict().size() == 1);
  CHECK(LayerNorm({.normalized_shape = 2, .elementwise_affine = false}).state_dict().empty());
  CHECK(testing::layer_gradcheck(layer, {3, 2}) == "");

  RMSNorm root({.normalized_shape = 2, .epsilon = 1e-5, .dtype = DType::f64});
  REQUIRE(root.state_dict().size() == 1);
  CHECK(root(Tensor::from_vector<double>({1, 3})).to_vector<double>()[1] == near(3 / std::sqrt(5 + 1e-5)));
  CHECK(testing::layer_gradcheck(root, {3, 2}) == "");

  LayerScale last({.channels = 2, .dtype = DType::f64}), first({.channels = 2, .init = 0.5, .dim = 1, .dtype = DType::f64});
  CHECK(state_of(last, "gamma").to_vector<double>() == std::vector<double>(2, 1e-4));
  first.load_state_dict({{"gamma", Tensor::from_vector<double>({2, 3})}});
  CHECK(first(Tensor::ones({1, 2, 3}, {.dtype = DType::f64})).to_vector<double>() == std::vector<double>{2, 2, 2, 3, 3, 3});
  CHECK(testing::layer_gradcheck(last, {3, 2}) == "");
  CHECK(testing::layer_gradcheck(first, {3, 2, 4}) == "");
  LayerScale scale({.channels = 2, .name = "scale"});
  CHECK(scale.state_dict().front().first == "scale");
}

TEST_CASE("layer norm, RMS norm and layer scale: errors") {
  CHECK_THROWS_WITH_AS(LayerNorm({.normalized_shape = 0}), "LayerNorm: expected normalized_shape >= 1, got 0", ShapeError);
  CHECK_THROWS_WITH_AS(LayerNorm({.normalized_shape = 2, .epsilon = -1}), "LayerNorm: expected epsilon >= 0, got -1",
                       ShapeError);
  CHECK_THROWS_WITH_AS(RMSNorm({.normalized_shape = 2, .epsilon = -1}), "RMSNorm: expected epsilon >= 0, got -1", ShapeError);
  CHECK_THROWS_WITH_AS(LayerScale({.channels = 2, .dtype = DType::i64}), "LayerScale: expected a floating-point dtype, got i64",
                       DTypeError);
  LayerNorm layer({.normalized_shape = 2});
  CHECK_THROWS_WITH_AS((void)layer(Tensor::ones({2, 3})), "LayerNorm: expected x (..., C=2), got (2, 3)", ShapeError);
  RMSNorm root({.normalized_shape = 2});
  CHECK_THROWS_WITH_AS((void)root(Tensor::ones({2, 3})), "RMSNorm: expected x (..., C=2), got (2, 3)", ShapeError);
  LayerScale scale({.channels = 2, .dim = 1});
  CHECK_THROWS_WITH_AS((void)scale(Tensor::ones({2, 3, 2})), "LayerScale: expected C=2 in dimension 1, got (2, 3, 2)",
                       ShapeError);
}

TEST_CASE("normalisations of each position, and learned scales, in pieces") {
  manual_seed(6);
  const auto conv = [] { return Conv1d({.in_channels = 6, .out_channels = 6, .kernel_size = 5, .padding = 2}); };
  Sequential net(conv(), ChannelsLast(LayerNorm({.normalized_shape = 6}), LayerScale({.channels = 6, .init = 0.7})),
                 LayerScale({.channels = 6, .init = 0.5, .dim = 1}), conv(),
                 ChannelsLast(RMSNorm({.normalized_shape = 6}), LayerScale({.channels = 6, .init = 2, .dim = 2}),
                              LayerNorm({.normalized_shape = 6, .elementwise_affine = false})),
                 LayerScale({.channels = 6, .init = 3, .dim = -2}), BatchNorm1d({.num_features = 6}));
  net.train();
  for (int i = 0; i < 3; ++i) (void)net(random_f64({2, 6, 30}, static_cast<std::uint64_t>(i)).to(DType::f32));
  check_stream(net, {2, 6, 70});
  CHECK(receptive_field(net).right == 4);
}

TEST_CASE("normalisations that cannot be streamed") {
  const auto refusal = [](auto net) { return error_of<NotImplemented>([&] { return Stream(net).latency(); }); };
  CHECK(refusal(BatchNorm1d({.num_features = 4, .track_running_stats = false})) ==
        "stream: polyphase::BatchNorm1d cannot take its input piece by piece (Module::make_stream)");
  CHECK(refusal(LayerScale({.channels = 4, .dim = 0})).find("polyphase::LayerScale cannot") != std::string::npos);
  CHECK(refusal(LayerScale({.channels = 4})).find("polyphase::LayerScale takes (N, L, C)") != std::string::npos);
  BatchNorm1d training({.num_features = 4});
  Stream stream(training);
  CHECK(error_of<Error>([&] {
          return stream.push(Tensor::ones({2, 4, 3}));
        }) == "stream: expected polyphase::BatchNorm1d after eval(), got it in training");
}
