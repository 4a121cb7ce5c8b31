#pragma once
// The work of a case of bench/networks: a network with random weights and an input, run repeatedly.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conv/algorithm.hpp"
#include "network_cases.hpp"
#include "networks/network.hpp"

namespace polyphase {
class GanTraining;
class Optimizer;
class Stream;
}  // namespace polyphase

namespace polyphase::bench {

/// The meaning of a column of precisions.
struct NetworkPrecision {
  DType dtype = DType::f32;
  Precision precision = Precision::fp32;
};
/// Parses "fp32", "tf32", "ieee", "f16", "bf16" or "f64". Throws Error with these names.
[[nodiscard]] NetworkPrecision network_precision(const std::string& name);

class NetworkWork {
 public:
  /// Weights, input and target are the same in every call. A step in f16 or bf16 is an f32 network under autocast.
  /// Throws the registry's errors, and Error if the configuration cannot be read.
  NetworkWork(const NetworkCase& what, const NetworkPrecision& precision, Device device);
  ~NetworkWork();
  NetworkWork(const NetworkWork&) = delete;
  NetworkWork& operator=(const NetworkWork&) = delete;

  /// Runs once, without waiting.
  void run();
  /// Has a Stream record its pushes; the next run() replays one. Throws Error if the network's pushes cannot be recorded.
  void record_stream();
  [[nodiscard]] Network& net() { return *net_; }
  [[nodiscard]] const Tensor& input() const { return input_; }
  [[nodiscard]] const Shape& input_shape() const { return input_.shape(); }
  /// Seconds of audio in the input, all samples of the batch together.
  [[nodiscard]] double seconds() const;
  /// Why the last result cannot be right, empty if it can: a wrong number of samples, NaN or infinity, a loss that has not
  /// fallen. Waits.
  [[nodiscard]] std::string problem() const;
  /// The last result: samples, or the loss, of a GAN the mel loss.
  [[nodiscard]] std::vector<float> result() const;

 private:
  /// A Stream whose past is complete, so that each push costs the same.
  void begin_stream();
  void run_step();
  void run_gan();

  NetworkCase what_;
  NetworkPrecision precision_;
  std::unique_ptr<Network> net_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GanTraining> gan_;
  Tensor input_, target_, output_;
  std::optional<double> first_loss_{};
};

}  // namespace polyphase::bench
