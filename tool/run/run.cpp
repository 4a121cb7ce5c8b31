#include "run/run.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "autograd/no_grad.hpp"
#include "conv/algorithm.hpp"
#include "io/safetensors.hpp"
#include "layers/streaming/stream.hpp"
#include "networks/decode.hpp"
#include "networks/registry.hpp"
#include "program/audio/pipe_input.hpp"
#include "program/audio/stream_progress.hpp"
#include "program/text.hpp"
#include "run/input.hpp"
#include "run/spectrogram.hpp"

namespace polyphase::tool {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Say = std::function<void(const std::string&)>;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// An open model and its device.
class Runner {
 public:
  Runner(const RunOptions& options, const Say& say)
      : options_(options), say_(say), model_(load_model(options.model, options.model_options)) {
    if (options.dtype != DType::f32) model_.net->to(options.dtype);
    model_.net->to(options.device);
  }

  void run(const std::string& input, const std::string& output) {
    const NetworkFormat& format = model_.net->format();
    RunInput content = read_input(input, format);
    const bool is_sound = content.audio.has_value();
    if (is_sound) content = network_input(*content.audio, input);
    if (is_sound && is_array_name(output)) return write_input(content, output);
    require<Error>(!is_array_name(output) || is_npy_name(output), output, ": expected a WAV file or .npy for the samples");
    const Tensor tensor = first_codebooks(content.tensor, format, options_.codebooks);
    try {
      model_.net->set_scales(content.scales);
      decode_to(tensor, output);
    } catch (const FormatError&) {
      throw;
    } catch (const Error& error) {
      throw Error(concat(input, ": ", error.what()));
    }
  }

 private:
  /// The network's input for this sound: its mel, or its codes.
  RunInput network_input(const program::Audio& audio, const std::string& name) {
    const NetworkFormat& format = model_.net->format();
    if (!front_end_) front_end_ = load_front_end(model_, options_.model, options_.device);
    const std::int64_t channels = format.input == NetworkInput::codes ? format.audio_channels : 1;
    const Tensor sound = as_network_audio(audio, name, format.sampling_rate, channels, say_);
    const FrontEndOutput made = front_end_(sound.to(options_.device));
    return {.tensor = made.input.detach().cpu(), .scales = made.scales.defined() ? made.scales.detach().cpu() : Tensor()};
  }

  /// Writes what a sound became. An array holds the codes alone, safetensors the volume of segments too.
  void write_input(const RunInput& content, const std::string& output) {
    const std::string word = word_of(model_.net->format().input);
    const Tensor tensor = content.tensor.select(0, 0);
    std::string what = concat(output, ": ", word, " ", tensor.shape());
    if (is_npy_name(output)) {
      write_array(output, tensor);
      if (content.scales.defined())
        what += "; the volume of its segments is left out, and is 1 when they are decoded; a name with .safetensors keeps it";
    } else {
      NamedTensors tensors{{word, tensor}};
      if (content.scales.defined()) tensors.emplace_back(kScales, content.scales.select(0, 0));
      save_safetensors(output, tensors);
    }
    say_(what);
  }

  void decode_to(const Tensor& tensor, const std::string& output) {
    const NetworkFormat& format = model_.net->format();
    const std::int64_t rate = format.sampling_rate;
    require<Error>(rate > 0 || is_array_name(output), "--config: expected the network's sampling_rate");
    OutputOptions out_options = options_.out;
    out_options.keeps_samples = !options_.picture.empty();
    const Clock::time_point start = Clock::now();
    AudioOutput out(output, rate, format.audio_channels, out_options);
    const std::int64_t expected = tensor.size(2) * format.samples_per_frame;
    std::optional<program::StreamProgress> progress(std::in_place, expected, static_cast<int>(std::max<std::int64_t>(rate, 1)));
    const DecodeOptions pieces{.frames_at_a_time = options_.stream > 0 ? options_.stream : options_.chunk,
                               .memory = options_.memory};
    Clock::time_point last = start;
    double slowest = 0;
    decode(*model_.net, tensor, pieces, [&](const Tensor& audio) {
      out.write(audio);
      progress->show(out.frames());
      slowest = std::max(slowest, seconds_since(last));
      last = Clock::now();
    });
    progress.reset();
    out.commit();
    report(output, out, seconds_since(start), slowest);
  }

  void report(const std::string& output, const AudioOutput& out, double seconds, double slowest) {
    const NetworkFormat& format = model_.net->format();
    if (!options_.picture.empty())
      write_png(options_.picture, spectrogram(out.samples(), std::max<std::int64_t>(format.sampling_rate, 1)));
    if (out.clipped() > 0)
      say_(concat(program::grouped(out.clipped()),
                  " samples were louder than full scale and are clipped; --format float32 keeps them"));
    const double rate = static_cast<double>(format.sampling_rate);
    std::string text = concat(output, ": ", program::fixed(static_cast<double>(out.frames()) / std::max(rate, 1.0), 2),
                              " s at ", format.sampling_rate, " Hz, ", program::counted(format.audio_channels, "channel"),
                              ", in ", program::fixed(seconds, 2), " s");
    if (rate > 0)
      text += concat(": ", program::fixed(static_cast<double>(out.frames()) / rate / seconds, 1), " times real time");
    if (options_.stream > 0) {
      Stream stream(*model_.net);
      const double frame = 1000 * static_cast<double>(format.samples_per_frame) / std::max(rate, 1.0);
      text +=
          concat("; latency ", stream.latency(), " frames (", program::fixed(static_cast<double>(stream.latency()) * frame, 0),
                 " ms), the slowest step ", program::fixed(1000 * slowest, 0), " ms for ", options_.stream, " frames of ",
                 program::fixed(frame, 1), " ms");
    }
    say_(text);
  }

  const RunOptions& options_;
  const Say& say_;
  Model model_;
  FrontEnd front_end_;
};

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return path.ends_with('/') || fs::is_directory(path, ignored);
}

}  // namespace

std::size_t parse_bytes(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},       {"B", 1},         {"KB", 1e3},         {"MB", 1e6}, {"GB", 1e9},
                             {"KiB", 1024}, {"MiB", 1048576}, {"GiB", 1073741824}, {"M", 1e6},  {"G", 1e9}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto* const unit = std::find_if(std::begin(kUnits), std::end(kUnits), [&](const Unit& u) { return u.name == name; });
  const bool is_size =
      error == std::errc() && unit != std::end(kUnits) && value > 0 && value * unit->bytes >= 1 && value * unit->bytes < 1e18;
  require<Error>(is_size, "expected a size as 800MB or 16GiB, got ", text);
  return static_cast<std::size_t>(value * unit->bytes);
}

std::vector<std::string> output_names(const RunOptions& options) {
  const bool into_folder = is_folder(options.output);
  require<Error>(options.inputs.size() == 1 || into_folder, options.output, ": expected a folder for ", options.inputs.size(),
                 " inputs");
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const std::string& input : options.inputs) {
    const std::string end = options.out.container == program::Container::raw ? ".pcm" : ".wav";
    const std::string stem = input == program::kStandardStream ? "stdin" : fs::path(input).stem().string();
    names.push_back(into_folder ? (fs::path(options.output) / (stem + end)).string() : options.output);
    require<Error>(seen.insert(names.back()).second, names.back(), ": two inputs have this output");
    std::error_code ignored;
    for (const std::string& source : {input, options.model})
      require<Error>(!fs::is_regular_file(source, ignored) || !fs::equivalent(source, names.back(), ignored), names.back(),
                     ": expected an output of its own, got the file of ", source);
  }
  return names;
}

void run(const RunOptions& options, const Say& say) {
  const std::vector<std::string> outputs = output_names(options);
  const NoGradGuard no_grad;
  const PrecisionGuard precision(options.precision);
  Runner runner(options, say);
  if (is_folder(options.output)) {
    std::error_code error;
    fs::create_directories(options.output, error);
    require<Error>(!error, options.output, ": cannot be made: ", error.message());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) runner.run(options.inputs[i], outputs[i]);
}

}  // namespace polyphase::tool
