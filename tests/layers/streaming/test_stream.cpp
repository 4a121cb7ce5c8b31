#include "layers/streaming/stream.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autograd/no_grad.hpp"
#include "conv/length_invariant.hpp"
#include "device/backend.hpp"
#include "layers/activations.hpp"
#include "layers/antialiased_activation.hpp"
#include "layers/containers/channels_last.hpp"
#include "layers/containers/mean_of_branches.hpp"
#include "layers/containers/residual.hpp"
#include "layers/containers/sequential.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"
#include "layers/embedding.hpp"
#include "layers/linear.hpp"
#include "layers/lstm.hpp"
#include "layers/norm.hpp"
#include "layers/upsample.hpp"
#include "ops/length.hpp"
#include "support/helpers.hpp"
#include "support/stream.hpp"
#include "tensor/random.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("activations, upsampling and pixel shuffle") {
  manual_seed(8);
  Sequential net(LeakyReLU(0.1), Upsample({.scale_factor = 3}), Snake(6),
                 Upsample({.scale_factor = 2, .mode = UpsampleMode::linear}), SnakeBeta(6, {.alpha_logscale = true}),
                 PixelShuffle1d(3), Tanh());
  check_stream(net, {2, 6, 70});
}

TEST_CASE("a whole decoder: up, residual blocks, down") {
  manual_seed(9);
  const auto block = [](std::int64_t channels, std::int64_t dilation) {
    return Residual({.scale = 0.7}, LeakyReLU(0.1),
                    Conv1d({.in_channels = channels,
                            .out_channels = channels,
                            .kernel_size = 7,
                            .padding = 3 * dilation,
                            .dilation = dilation}),
                    LeakyReLU(0.1),
                    Conv1d({.in_channels = channels, .out_channels = channels, .kernel_size = 3, .padding = 1}));
  };
  Sequential net(Conv1d({.in_channels = 10, .out_channels = 16, .kernel_size = 7, .padding = 3}), LeakyReLU(0.1),
                 ConvTranspose1d({.in_channels = 16, .out_channels = 8, .kernel_size = 16, .stride = 8, .padding = 4}),
                 block(8, 1), block(8, 5), Snake(8),
                 ConvTranspose1d({.in_channels = 8, .out_channels = 4, .kernel_size = 10, .stride = 5, .padding = 3}),
                 block(4, 9), Conv1d({.in_channels = 4, .out_channels = 1, .kernel_size = 7, .padding = 3}), Tanh());
  check_stream(net, {2, 10, 90});
  check_stream(net, {1, 10, 1});
}

TEST_CASE("causal networks return their outputs immediately, others after their latency") {
  manual_seed(10);
  Sequential causal(Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 7, .padding = {6, 0}}), ELU(),
                    ConvTranspose1d({.in_channels = 4, .out_channels = 2, .kernel_size = 8, .stride = 4, .padding = {0, 4}}));
  CHECK(receptive_field(causal).is_causal());
  CHECK(receptive_field(causal).left == 7);
  Stream now(causal);
  CHECK(now.latency() == 0);
  CHECK(now.rate().up == 4);
  for (int i = 0; i < 3; ++i) CHECK(now.push(Tensor::ones({1, 3, 1})).shape() == Shape{1, 2, 4});
  CHECK(now.finish().shape() == Shape{1, 2, 0});

  Sequential centred(Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 7, .padding = 3}),
                     ConvTranspose1d({.in_channels = 4, .out_channels = 2, .kernel_size = 8, .stride = 4, .padding = 2}));
  CHECK(receptive_field(centred).left == 4);
  CHECK(receptive_field(centred).right == 4);
  Stream later(centred);
  CHECK(later.latency() == 4);
  std::int64_t samples = 0;
  for (int i = 0; i < 20; ++i) {
    samples += later.push(Tensor::ones({1, 3, 1})).size(2);
    // All samples of a frame are available as soon as `latency` more frames have come.
    CHECK(samples >= std::max(0, i + 1 - 4) * 4);
    CHECK(samples <= std::max(0, i + 1 - 3) * 4);
  }
}

TEST_CASE("what an output depends on is what receptive_field says") {
  manual_seed(11);
  Sequential net(Conv1d({.in_channels = 1, .out_channels = 3, .kernel_size = 5, .padding = {1, 3}, .dilation = 2}),
                 ConvTranspose1d({.in_channels = 3, .out_channels = 2, .kernel_size = 7, .stride = 3, .padding = 2}),
                 Residual(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = 3, .padding = 3, .dilation = 3})));
  net.to(DType::f64);
  const NoGradGuard no_grad;
  const Tensor x = random_f64({1, 1, 60});
  const std::vector<double> before = net(x).select(1, 0).to_vector<double>();
  const ReceptiveField field = receptive_field(net);
  Tensor changed = x.clone();
  changed.narrow(2, 30, 1).fill_(9);
  const std::vector<double> after = net(changed).select(1, 0).to_vector<double>();
  std::int64_t first = -1, last = -1;
  for (std::size_t t = 0; t < before.size(); ++t) {
    if (before[t] == after[t]) continue;
    if (first < 0) first = static_cast<std::int64_t>(t);
    last = static_cast<std::int64_t>(t);
  }
  CHECK(first / 3 == 30 - field.right);
  CHECK(last / 3 == 30 + field.left);
}

TEST_CASE("long pushes are cut to what was reserved, and a stream can begin again") {
  manual_seed(12);
  Sequential net(Conv1d({.in_channels = 3, .out_channels = 4, .kernel_size = 7, .padding = 3}), Tanh());
  const NoGradGuard no_grad;
  const Tensor x = random_f64({2, 3, 40}).to(DType::f32);
  const std::vector<double> whole = f64_values(net(x));
  Stream stream(net);
  stream.reserve(7);
  for (int time = 0; time < 2; ++time) {
    const Tensor first = stream.push(x);
    CHECK(f64_values(cat({first, stream.finish()}, 2)) == whole);
    stream.reset();
  }
  CHECK(f64_values(stream.push(x.narrow(0, 0, 1))).size() == 37 * 4);
}

TEST_CASE("what a stream refuses") {
  Sequential net(Conv1d({.in_channels = 4, .out_channels = 4, .kernel_size = 3}),
                 GroupNorm({.num_groups = 2, .num_channels = 4}));
  CHECK(error_of<NotImplemented>([&] { return Stream(net).latency(); }).find("polyphase::GroupNorm") != std::string::npos);
  Sequential good(Conv1d({.in_channels = 4, .out_channels = 4, .kernel_size = 3}));
  Stream stream(good);
  CHECK(error_of<Error>([&] { return stream.finish(); }).find("begun") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return stream.push(Tensor::ones({4, 5})); }).find("got (4, 5)") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return stream.push(Tensor::ones({1, 4, 0})); }).find("got (1, 4, 0)") != std::string::npos);
  static_cast<void>(stream.push(Tensor::ones({1, 4, 5})));
  CHECK(error_of<ShapeError>([&] { return stream.push(Tensor::ones({2, 4, 5})); }).find("as before") != std::string::npos);
  CHECK(stream.finish().size(2) == 0);
  CHECK(error_of<Error>([&] { return stream.push(Tensor::ones({1, 4, 5})); }).find("reset()") != std::string::npos);
  CHECK(error_of<ShapeError>([&] { return stream.reserve(0), 0; }).find("got 0") != std::string::npos);
}

TEST_CASE("pushes of a fixed size take no more memory from the device after the first") {
  manual_seed(13);
  const auto conv = [](std::int64_t kernel_size) {
    return Conv1d({.in_channels = 8, .out_channels = 8, .kernel_size = kernel_size, .padding = kernel_size / 2});
  };
  Sequential net(
      conv(7), Residual(ChannelsLast(LSTM({.input_size = 8, .hidden_size = 8, .num_layers = 2}))),
      ConvTranspose1d({.in_channels = 8, .out_channels = 8, .kernel_size = 8, .stride = 4, .padding = 2}),
      MeanOfBranches(Residual(conv(3)), Residual(AntialiasedActivation(SnakeBeta(8)), conv(11))),
      Residual(conv(5), ChannelsLast(LayerNorm({.normalized_shape = 8}), Linear({.in_features = 8, .out_features = 24}), GELU(),
                                     Linear({.in_features = 24, .out_features = 8}), LayerScale({.channels = 8}))),
      conv(3), Tanh());
  const NoGradGuard no_grad;
  Allocator& allocator = backend_of(default_device()).allocator();
  for (const std::int64_t size : {1, 6}) {
    CAPTURE(size);
    Stream stream(net);
    stream.reserve(size);
    const Tensor x = random_f64({2, 8, size}).to(DType::f32);
    const auto push = [&] { return stream.push(x).size(2); };
    for (std::int64_t t = 0; t < stream.latency() + 2 * size; t += size) push();
    const MemoryStats before = allocator.stats();
    std::int64_t samples = 0;
    for (int i = 0; i < 20; ++i) samples += push();
    const MemoryStats after = allocator.stats();
    CHECK(samples == 20 * size * 4);
    CHECK(after.live_bytes == before.live_bytes);
    CHECK(after.cached_bytes == before.cached_bytes);
    CHECK(after.allocations > before.allocations);
  }
}

TEST_CASE("recorded pushes: the same samples, from the fourth push of a size on, also after one of another size and a reset") {
  manual_seed(14);
  Sequential net(Conv1d({.in_channels = 4, .out_channels = 8, .kernel_size = 7, .padding = 3}),
                 ChannelsLast(LSTM({.input_size = 8, .hidden_size = 8})),
                 ConvTranspose1d({.in_channels = 8, .out_channels = 4, .kernel_size = 8, .stride = 4, .padding = 2}), Tanh());
  net.eval();
  const NoGradGuard no_grad;
  const bool on_gpu = default_device().is_cuda();
  Stream eager(net), recorded(net);
  recorded.record_pushes();
  for (int stream = 0; stream < 2; ++stream) {
    int replays = 0;
    for (const std::int64_t size : {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2}) {
      const Tensor x = random_f64({1, 4, size}, static_cast<std::uint64_t>(replays + size)).to(DType::f32);
      const std::vector<double> expected = f64_values(eager.push(x));
      CHECK(f64_values(recorded.push(x)) == expected);
      if (recorded.has_replayed()) ++replays;
    }
    CHECK((on_gpu ? replays >= 6 : replays == 0));
    CHECK(f64_values(recorded.finish()) == f64_values(eager.finish()));
    recorded.reset();
    eager.reset();
  }
}

TEST_CASE("under a LengthInvariantGuard a stream has the bits of the whole on every device") {
  manual_seed(15);
  const auto block = [](std::int64_t channels, std::int64_t kernel_size, std::int64_t dilation) {
    return Residual(Snake(channels), Conv1d({.in_channels = channels,
                                             .out_channels = channels,
                                             .kernel_size = kernel_size,
                                             .padding = (kernel_size - 1) / 2 * dilation,
                                             .dilation = dilation}));
  };
  Sequential net(Conv1d({.in_channels = 80, .out_channels = 64, .kernel_size = 7, .padding = 3}),
                 Residual(ChannelsLast(LSTM({.input_size = 64, .hidden_size = 64}))), LeakyReLU(0.1),
                 ConvTranspose1d({.in_channels = 64, .out_channels = 32, .kernel_size = 16, .stride = 8, .padding = 4}),
                 MeanOfBranches(block(32, 3, 1), block(32, 7, 5), block(32, 11, 3)),
                 ConvTranspose1d({.in_channels = 32, .out_channels = 8, .kernel_size = 5, .stride = 3, .padding = 1}),
                 block(8, 3, 9), Conv1d({.in_channels = 8, .out_channels = 1, .kernel_size = 7, .padding = 3}), Tanh());
  net.eval();
  const NoGradGuard no_grad;
  const LengthInvariantGuard guard;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    CAPTURE(dtype);
    net.to(dtype);
    const Tensor x = random_f64({2, 80, 70}, 6).to(dtype);
    const std::vector<double> whole = f64_values(net(x));
    CHECK(f64_values(net(x.narrow(0, 1, 1))) ==
          std::vector<double>(whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2), whole.end()));
    for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1}, {3}, {64}, {5, 1, 17, 2}}) {
      CAPTURE(sizes.front());
      CHECK(f64_values(streamed(net, x, sizes)) == whole);
    }
  }
}

TEST_CASE("indices (N, n) are for networks that begin with an embedding") {
  Sequential net(Conv1d({.in_channels = 4, .out_channels = 4, .kernel_size = 3}));
  Stream stream(net);
  CHECK(error_of<ShapeError>([&] {
          return stream.push(Tensor::ones({2, 5}));
        }) == "Stream::push: expected x (N, C, n >= 1), or indices (N, n), got (2, 5)");
  ChannelsLast codes(Embedding({.num_embeddings = 5, .embedding_dim = 3}));
  Stream embedded(codes);
  const Tensor indices = Tensor::from_vector(std::vector<std::int64_t>{0, 1, 2, 3, 4, 0}, {2, 3});
  CHECK(embedded.push(indices).shape() == Shape{2, 3, 3});
  CHECK(error_of<ShapeError>([&] { return embedded.push(indices.narrow(0, 0, 1)); }) ==
        "Stream::push: expected x (N=2, n) as before, got (1, 3)");
}
