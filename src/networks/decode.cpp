#include "networks/decode.hpp"

#include <algorithm>

#include "autograd/no_grad.hpp"
#include "layers/streaming/stream.hpp"
#include "tensor/memory.hpp"

namespace polyphase {
namespace {

// What is not tried (another kernel, blocks of other sizes) may take a little more than what was.
constexpr double kShareUsed = 0.9;
constexpr std::int64_t kShortTrial = 8, kLongTrial = 32;  // frames

/// Where the network is and what its input has to be.
TensorOptions input_options(Network& network) {
  const std::vector<Tensor> parameters = network.parameters();
  const Device device = parameters.empty() ? default_device() : parameters.front().device();
  if (network.format().input == NetworkInput::codes) return {.dtype = DType::i64, .device = device};
  return {.dtype = parameters.empty() ? DType::f32 : parameters.front().dtype(), .device = device};
}

Tensor prepared(const Tensor& input, const TensorOptions& options) { return input.to(options.dtype).to(options.device); }

/// The most bytes that were live while a stream took two pieces of so many frames.
std::size_t peak_of(Network& network, const Shape& input, std::int64_t frames) {
  const TensorOptions options = input_options(network);
  const Tensor piece = Tensor::zeros({input[0], input[1], frames}, options);
  Stream stream(network);
  reset_peak_memory(options.device);
  for (int i = 0; i < 2; ++i) static_cast<void>(stream.push(piece));
  return memory_stats(options.device).peak_bytes;
}

}  // namespace

std::int64_t frames_within(Network& network, const Shape& input, std::size_t memory) {
  const NoGradGuard no_grad;
  const auto allowed = static_cast<std::size_t>(kShareUsed * static_cast<double>(memory));
  const std::int64_t frames = input[2];
  const std::size_t least = peak_of(network, input, 1);
  require<Error>(least <= allowed, "decode: expected at least ",
                 static_cast<std::size_t>(static_cast<double>(least) / kShareUsed) + 1,
                 " bytes of memory for one frame at a time, the network's own tensors included, got ", memory);
  const auto low = static_cast<double>(peak_of(network, input, kShortTrial));
  const auto high = static_cast<double>(peak_of(network, input, kLongTrial));
  const double a_frame = std::max((high - low) / static_cast<double>(kLongTrial - kShortTrial), 1.0);
  const double fit = static_cast<double>(kShortTrial) + (static_cast<double>(allowed) - low) / a_frame;
  std::int64_t count = std::max<std::int64_t>(static_cast<std::int64_t>(std::min(fit, static_cast<double>(frames))), 1);
  while (count > 1 && peak_of(network, input, count) > allowed) count = count * 3 / 4;
  return count;
}

void decode(Network& network, const Tensor& input, const DecodeOptions& options, const AudioSink& sink) {
  require<Error>(options.frames_at_a_time >= 0, "decode: expected frames_at_a_time of at least 0, got ",
                 options.frames_at_a_time);
  require<ShapeError>(input.rank() == 3 && input.size(2) >= 1, "decode: expected an input (N, rows, frames >= 1), got ",
                      input.shape());
  const NoGradGuard no_grad;
  const TensorOptions own = input_options(network);
  const std::int64_t frames = input.size(2);
  std::int64_t piece = options.frames_at_a_time == 0 ? frames : std::min(options.frames_at_a_time, frames);
  if (options.memory != 0) piece = std::min(piece, frames_within(network, input.shape(), options.memory));
  if (piece == frames) {
    sink(network(prepared(input, own)));
    return;
  }
  Stream stream(network);
  for (std::int64_t begin = 0; begin < frames; begin += piece) {
    const Tensor audio = stream.push(prepared(input.narrow(2, begin, std::min(piece, frames - begin)), own));
    if (audio.size(2) > 0) sink(audio);
  }
  const Tensor rest = stream.finish();
  if (rest.size(2) > 0) sink(rest);
}

}  // namespace polyphase
