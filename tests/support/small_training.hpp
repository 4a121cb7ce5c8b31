#pragma once
// A training of every layer, loss and activation on small tensors, on the default device. The tests of whole steps use it.

#include <memory>
#include <vector>

#include <polyphase/polyphase.hpp>

namespace polyphase::testing {

/// Pads by reflected and repeated elements.
class PadBothWays : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    return pad1d(pad1d(x, {3, 3}, PaddingMode::reflect), {1, 1}, PaddingMode::replicate);
  }
  void visit(Visitor&) override {}
};

/// The activations without a class above.
class ManyActivations : public Module {
 public:
  [[nodiscard]] Tensor forward(const Tensor& x) override {
    return elu(x) + gelu(x) * 0.1 + silu(x) + tanh(x) + sigmoid(x) + softplus(x) * 0.1 + leaky_relu(x, 0.1) + relu(x);
  }
  void visit(Visitor&) override {}
};

struct SmallTraining {
  Sequential net;
  std::unique_ptr<Adam> optimizer;
  Tensor x, y;  // (2, 3, 40), (2, 2, 348)

  SmallTraining() {
    Generator generator(5);
    const GeneratorGuard guard(generator);
    net = Sequential(weight_norm(Conv1d({.in_channels = 3, .out_channels = 8, .kernel_size = 5, .padding = 2})),
                     GroupNorm({.num_groups = 2, .num_channels = 8}), Snake(8),
                     ConvTranspose1d({.in_channels = 8, .out_channels = 8, .kernel_size = 4, .stride = 2, .padding = 1}),
                     BatchNorm1d({.num_features = 8}), ManyActivations(), Dropout(0.25),
                     Conv1d({.in_channels = 8, .out_channels = 8, .kernel_size = 3, .padding = 1, .groups = 8}), SnakeBeta(8),
                     BatchNorm1d({.num_features = 8, .momentum = std::nullopt}), Upsample({.scale_factor = 2}),
                     Upsample({.scale_factor = 2, .mode = UpsampleMode::linear}), PadBothWays(), PixelShuffle1d(2),
                     Linear({.in_features = 656, .out_features = 348}),
                     Conv1d({.in_channels = 4, .out_channels = 2, .kernel_size = 1}));
    optimizer = std::make_unique<Adam>(net.parameters(), AdamOptions{.learning_rate = 1e-3});
    x = Tensor::randn({2, 3, 40});
    y = Tensor::randn({2, 2, 348});
  }

  [[nodiscard]] Tensor loss() {
    static const MultiResolutionStftOptions kSpectra{.resolutions = {{64, 16, 64}, {128, 32, 100}}};
    const Tensor output = net(x);
    return mse_loss(output, y) + l1_loss(output, y) + smooth_l1_loss(output, y) +
           multi_resolution_stft_loss(output, y, kSpectra);
  }
  /// One update; returns the loss, on the device.
  Tensor step() {
    optimizer->zero_grad();
    const Tensor value = loss();
    value.backward();
    optimizer->step();
    return value.detach();
  }
};

}  // namespace polyphase::testing
