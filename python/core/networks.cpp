// Published networks, and networks fed piece by piece.

#include <nanobind/stl/function.h>
#include <nanobind/stl/unique_ptr.h>

#include "casters.hpp"
#include "core.hpp"
#include "layers/streaming/stream.hpp"
#include "networks/bigvgan.hpp"
#include "networks/dac.hpp"
#include "networks/decode.hpp"
#include "networks/encodec.hpp"
#include "networks/files/model_file.hpp"
#include "networks/hifigan.hpp"
#include "networks/mimi.hpp"
#include "networks/oobleck.hpp"
#include "networks/qwen3_12hz.hpp"
#include "networks/registry.hpp"
#include "networks/snac.hpp"
#include "networks/vocos.hpp"

namespace polyphase::python {
namespace {

using namespace nb::literals;

void bind_base(nb::module_& module) {
  nb::class_<NetworkFormat>(module, "NetworkFormat", "What goes into a network and what comes out.")
      .def_ro("input", &NetworkFormat::input, "mel, latent, codes or audio.")
      .def_ro("rows", &NetworkFormat::rows,
              "Rows of the input: mel bands, channels of the latent, codes of a frame, audio channels.")
      .def_ro("samples_per_frame", &NetworkFormat::samples_per_frame, "Samples of the audio for one frame.")
      .def_ro("audio_channels", &NetworkFormat::audio_channels, "Channels of the audio.")
      .def_ro("sampling_rate", &NetworkFormat::sampling_rate, "In Hz; 0 where the configuration does not say it.")
      .def_ro("least_rows", &NetworkFormat::least_rows, "So few rows are taken too, the first ones; 0: `rows` only.")
      .def_ro("frame_multiple", &NetworkFormat::frame_multiple, "The number of frames must be a multiple of it.");
  nb::class_<Network, Module>(module, "Network", "A published decoder: (N, rows, frames) -> audio (N, channels, samples).")
      .def_prop_ro("format", &Network::format, nb::rv_policy::copy, "A NetworkFormat.")
      .def(
          "set_scales", [](Network& self, const Tensor* scales) { self.set_scales(or_undefined(scales)); }, "scales"_a.none(),
          kUnlocked,
          "The volumes of segments of later inputs, FrontEndOutput.scales; None: 1. Raises NotImplemented for a network "
          "without segments.")
      .def("load_published", &Network::load_published, "state"_a, kUnlocked,
           "Copies a checkpoint of the original code in, weight norm folded. Raises Error naming every key that does not fit.");
}

/// A network that is made from its configuration's JSON.
template <class Bound, class Config>
nb::class_<Bound, Network> bind_network(nb::module_& module, const char* name, const char* doc) {
  return nb::class_<Bound, Network>(module, name, doc)
      .def(
          "__init__", [](Bound* self, const std::string& config) { new (self) Bound(Config::parse(config)); }, "config"_a,
          "config: the original's JSON. Raises FormatError naming the entry that is missing or does not fit.");
}

void bind_kinds(nb::module_& module) {
  bind_network<HifiGan, HifiGanConfig>(module, "HifiGan", "HiFi-GAN's generator: mel -> audio.");
  bind_network<BigVgan, BigVganConfig>(module, "BigVgan", "BigVGAN's generator: mel -> audio.");
  bind_network<Vocos, VocosConfig>(module, "Vocos", "Vocos' decoder.");
  bind_network<Mimi, MimiConfig>(module, "Mimi", "Mimi's decoder: codes -> audio.");
  bind_network<OobleckDecoder, OobleckConfig>(module, "OobleckDecoder", "Stable Audio's decoder: latent -> audio.");
  bind_network<SnacDecoder, SnacConfig>(module, "SnacDecoder", "SNAC's decoder.");
  bind_network<Qwen3Tts12Hz, Qwen3Tts12HzConfig>(module, "Qwen3Tts12Hz", "The decoder of Qwen3-TTS' 12 Hz tokenizer.");
  bind_network<DacDecoder, DacConfig>(module, "DacDecoder", "The Descript Audio Codec's decoder: codes -> audio.");
  bind_network<DacEncoder, DacConfig>(module, "DacEncoder", "The Descript Audio Codec's encoder: audio -> codes.");
  bind_network<Dac, DacConfig>(module, "Dac", "The Descript Audio Codec: audio -> audio.")
      .def("encode", &Dac::encode, "audio"_a, kUnlocked, "audio (N, 1, samples) -> codes (N, n_codebooks, frames).")
      .def("decode", &Dac::decode, "codes"_a, kUnlocked, "codes (N, n_codebooks, frames) -> audio (N, 1, samples).");
  nb::class_<EncodecSegment>(module, "EncodecSegment", "Codes (N, codebooks, frames) of a segment, and its scale.")
      .def_ro("codes", &EncodecSegment::codes, "i64 (N, codebooks, frames).")
      .def_prop_ro(
          "scale", [](const EncodecSegment& self) { return or_none(self.scale); }, nb::sig("def scale(self) -> Tensor | None"),
          "(N, 1): what the decoded audio is multiplied by; None: 1.");
  bind_network<Encodec, EncodecConfig>(module, "Encodec", "EnCodec's decoder: codes -> audio.")
      .def(
          "decode", [](Encodec& self, const std::vector<EncodecSegment>& segments) { return self.decode(segments); },
          "segments"_a, kUnlocked, "The audio (N, channels, samples) of segments, overlapped.");
  bind_network<EncodecEncoder, EncodecConfig>(module, "EncodecEncoder", "EnCodec's encoder: audio -> codes.")
      .def("encode", &EncodecEncoder::encode, "audio"_a, "codebooks"_a = 0, kUnlocked,
           "audio (N, channels, samples) -> segments; codebooks 0: all.");
}

void bind_models(nb::module_& module) {
  nb::class_<Model>(module, "Model", "A network and what it was made from.")
      .def_ro("network", &Model::network, "A name of network_names().")
      .def_ro("config", &Model::config, "JSON, in the original code's form.")
      .def_prop_ro(
          "net", [](const Model& self) -> Network& { return *self.net; }, nb::rv_policy::reference_internal, "The Network.");
  module.def(
      "load_model",
      [](const std::string& path, const std::string& network, const std::string& config) {
        return std::make_unique<Model>(load_model(path, {network, config}));
      },
      "path"_a, "network"_a = "", "config"_a = "", kUnlocked,
      R"(A published network from its file, f32 on the CPU and in eval mode.

Weights in any format of load_weights(). The network's name comes from the tensors' names unless `network` says it; the configuration
(JSON) from the file, config.json in its folder, or `config`. Raises FormatError and Error naming what does not fit.)");
  module.def("save_model", &save_model, "path"_a, "model"_a, kUnlocked,
             "Writes a Model as safetensors that load_model() reads alone.");
  module.def(
      "convert_model",
      [](const std::string& from, const std::string& to, const std::string& network, const std::string& config) {
        return std::make_unique<Model>(convert_model(from, to, {network, config}));
      },
      "source"_a, "target"_a, "network"_a = "", "config"_a = "", kUnlocked,
      "Reads a model as load_model() does and writes all tensors of its part of the checkpoint as safetensors.");
  nb::class_<FrontEndOutput>(module, "FrontEndOutput", "What a network takes of some audio.")
      .def_ro("input", &FrontEndOutput::input, "mel (N, rows, frames) or codes (N, codebooks, frames).")
      .def_prop_ro(
          "scales", [](const FrontEndOutput& self) { return or_none(self.scales); },
          nb::sig("def scales(self) -> Tensor | None"), "For Network.set_scales(), if segments have scales.");
  module.def(
      "load_front_end",
      [](const Model& model, const std::string& path, DeviceArg device) -> FrontEnd {
        return [front_end = load_front_end(model, path, device.device)](const Tensor& audio) {
          const nb::gil_scoped_release released;
          return front_end(audio);
        };
      },
      "model"_a, "path"_a, "device"_a = nb::none(),
      "A function from audio (N, channels, samples) to a FrontEndOutput, for a model that was read from path. Raises "
      "NotImplemented "
      "where there\n"
      "is none.");
  module.def(
      "network_names",
      [] {
        std::vector<std::string> names;
        for (const NetworkEntry& entry : network_entries()) names.emplace_back(entry.name);
        return names;
      },
      "The published networks by name.");
  module.def("make_network", &make_network, "name"_a, "config"_a, kUnlocked,
             "The network of this name with random weights, from its configuration's JSON. Raises FormatError.");
}

/// Hands pieces of audio to a Python function; Ctrl-C ends the decoding between two pieces.
void decode_to(Network& network, const Tensor& input, const std::function<void(Tensor)>& sink, std::int64_t frames_at_a_time,
               std::size_t memory) {
  const nb::gil_scoped_release released;
  decode(network, input, {frames_at_a_time, memory}, [&](const Tensor& audio) {
    const nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    sink(audio);
  });
}

void bind_streams(nb::module_& module) {
  module.def("decode", &decode_to, "network"_a, "input"_a, "sink"_a, "frames_at_a_time"_a = 0, "memory"_a = 0,
             R"(Decodes input (N, rows, frames) and hands the audio to sink(audio) piece by piece, in order.

frames_at_a_time 0: as many as `memory` bytes allow, all where that is 0 too. The pieces together are network(input).
Raises NotImplemented for a network that cannot be streamed, Error where one frame needs more than `memory`.)");
  nb::class_<ReceptiveField>(module, "ReceptiveField", "How many input positions an output depends on.")
      .def_ro("left", &ReceptiveField::left, "Before its own.")
      .def_ro("right", &ReceptiveField::right, "After its own: the latency of a Stream.")
      .def_prop_ro("is_causal", &ReceptiveField::is_causal, "right <= 0.");
  module.def("receptive_field", &receptive_field, "network"_a,
             "Raises NotImplemented naming a module that cannot be streamed.");
  nb::class_<Stream>(module, "Stream", R"(Feeds a network piece by piece.

The results of push() and finish(), joined, are network(all frames at once) for any split: bit for bit on the CPU. The network is used, not
copied. Gradients are not recorded. Raises NotImplemented naming a module that cannot be streamed.)")
      .def(nb::init<Module&>(), "network"_a, nb::keep_alive<1, 2>())
      .def("push", &Stream::push, "x"_a, kUnlocked,
           "The next n >= 1 positions x (N, C, n), or indices (N, n) -> (N, C', m), m >= 0. Raises Error after finish(), "
           "ShapeError.")
      .def("finish", &Stream::finish, kUnlocked,
           "Ends the stream: the remaining outputs (N, C', m). Raises Error if nothing was pushed.")
      .def("reset", &Stream::reset, "For another stream, also of another N.")
      .def("record_pushes", &Stream::record_pushes, "wanted"_a = true,
           R"(On a GPU, records pushes of one size as a CUDA graph and replays it: almost no work on the host.

Recording begins once three pushes of the same size have left the sizes of the state as they were. The result of a replayed push is
overwritten by the next push.)")
      .def_prop_ro("has_replayed", &Stream::has_replayed, "Whether the last push was replayed.")
      .def("reserve", &Stream::reserve, "max_positions"_a, "Processes longer pieces max_positions at a time.")
      .def_prop_ro("latency", &Stream::latency, "The number of later positions that an output waits for.")
      .def_prop_ro(
          "rate",
          [](const Stream& self) {
            return std::pair{self.rate().up, self.rate().down};
          },
          "(up, down): output positions for input positions.");
}

}  // namespace

void bind_networks(nb::module_& module) {
  bind_base(module);
  bind_kinds(module);
  bind_models(module);
  bind_streams(module);
}

}  // namespace polyphase::python
