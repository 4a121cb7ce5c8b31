#pragma once
// Published networks: what they have in common.

#include <cstdint>
#include <string>
#include <string_view>

#include "../layers/containers/sequential.hpp"
#include "../layers/module.hpp"

namespace polyphase {

enum class NetworkInput { mel, latent, codes, audio };

/// What goes into a network and what comes out.
struct NetworkFormat {
  NetworkInput input = NetworkInput::mel;
  std::int64_t rows = 0;               ///< of the input: mel bands, channels of the latent, codes of a frame, audio channels
  std::int64_t samples_per_frame = 0;  ///< of the audio, for one frame of the rest; a network may drop some at the ends
  std::int64_t audio_channels = 1;
  std::int64_t sampling_rate = 0;   ///< Hz; 0 where the configuration does not say it
  std::int64_t least_rows = 0;      ///< so few rows are taken too, the first ones: codebooks; 0: `rows` only
  std::int64_t frame_multiple = 1;  ///< the number of frames must be a multiple of it: windows of attention
};

/// A decoder: input (N, rows, frames) -> audio (N, audio_channels, samples); or, where the input is audio, an encoder or a
/// whole codec, whose class says what it gives. Codes are i64, everything else has the network's dtype. Parameters have the
/// names of the original code, without weight norm: load_published() folds it.
///
///     pp::HifiGan net(pp::HifiGanConfig::parse(json));
///     net.load_published(pp::load_safetensors("generator.safetensors").tensors);
///     const pp::Tensor audio = net(mel);
class Network : public Module {
 public:
  [[nodiscard]] const NetworkFormat& format() const { return format_; }

  void visit(Visitor& visitor) override;
  /// Throws ShapeError unless the input is (N, rows, frames) with frames >= 1, as the format says, DTypeError unless codes are
  /// i64.
  [[nodiscard]] Tensor forward(const Tensor& input) override;
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
  /// Sets the volume of each segment, (N, segments). forward() and every Stream multiply each segment by its volume. Segments
  /// past the last one have the volume 1, and so have all segments if `scales` is undefined. Throws NotImplemented unless the
  /// network decodes in segments (EnCodec).
  virtual void set_scales(const Tensor& scales);

  /// Copies a checkpoint of the original code in: weight norm in any spelling is folded in f64, and keys that decoding does not
  /// need are passed over. Throws Error naming every missing, unexpected and misshapen key; then nothing has changed.
  void load_published(const NamedTensors& state);

 protected:
  /// The modules of `body` one after another; their keys are the network's.
  Network(const NetworkFormat& format, Sequential body) : format_(format), body_(std::move(body)) {}
  /// Whether a checkpoint may have this key that the network has no tensor for.
  [[nodiscard]] virtual bool is_unused(std::string_view key) const;
  /// The network's own name of what a checkpoint has under `key`, in whatever spelling.
  [[nodiscard]] virtual std::string own_name(std::string_view key) const;
  [[nodiscard]] Sequential& body() { return body_; }
  /// What forward() requires of its input.
  void check_input(const Tensor& input) const;

 private:
  NetworkFormat format_;
  Sequential body_;
};

}  // namespace polyphase
