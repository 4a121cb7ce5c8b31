#pragma once
// LSTM layers.

#include <vector>

#include "../layers/module.hpp"
#include "../ops/lstm.hpp"

namespace polyphase {

/// (N, L, input_size) -> (N, L, hidden_size): PyTorch's LSTM with batch_first=True. Parameters of layer k: weight_ih_lk (4H,
/// C), weight_hh_lk (4H, H), bias_ih_lk and bias_hh_lk (4H), gates i, f, g, o; initially uniform within 1/sqrt(H).
class LSTM : public Module {
 public:
  struct Options {
    std::int64_t input_size = 0;   ///< C, required
    std::int64_t hidden_size = 0;  ///< H, required
    std::int64_t num_layers = 1;
    bool bias = true;
    DType dtype = DType::f32;
    Device device = default_device();
  };
  /// A state for each layer.
  using State = std::vector<LstmState>;

  /// Throws ShapeError unless all sizes are at least 1, DTypeError unless the dtype is floating point.
  explicit LSTM(const Options& options);
  void visit(Visitor& visitor) override;
  /// Starts from zeros. Throws the errors of lstm().
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Starts from `state`, or from zeros if it is empty; `state` becomes the state after the last step. An error leaves it
  /// unchanged.
  [[nodiscard]] Tensor forward(const Tensor& x, State& state);
  /// In a ChannelsLast.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  [[nodiscard]] const Options& options() const { return options_; }

 private:
  Options options_;
  std::vector<LstmWeights> layers_;
};

}  // namespace polyphase
