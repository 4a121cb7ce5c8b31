// polyphase run: sends sound, a mel or codes through a published network.

#include <cstdio>
#include <memory>

#include "commands.hpp"
#include "io/mapped_file.hpp"
#include "program/options.hpp"
#include "run/run.hpp"

namespace polyphase::tool {
namespace {

/// A number format: of the products only, or of all numbers.
void parse_numbers(const std::string& text, RunOptions& options) {
  if (text == "f16" || text == "bf16" || text == "f64") {
    options.dtype = program::parse_dtype(text);
  } else if (text == "fp32" || text == "tf32" || text == "ieee") {
    options.precision = parse_precision(text);
  } else {
    throw Error("expected fp32, tf32, ieee, f16, bf16 or f64, got " + text);
  }
}

program::SampleFormat parse_format(const std::string& text) {
  if (text == "pcm16") return program::SampleFormat::pcm16;
  if (text == "pcm24") return program::SampleFormat::pcm24;
  require<Error>(text == "float32", "expected pcm16, pcm24 or float32, got ", text);
  return program::SampleFormat::float32;
}

std::string text_of_file(const std::string& path) {
  const MappedFile file("run", path);
  return {file.data(), file.size()};
}

struct Words {
  RunOptions options;
  std::vector<std::string> files;
  std::string config;
  bool raw = false;
};

int run_words(Words& words) {
  if (words.files.size() < 2) throw UsageError("run: expected MODEL IN OUT");
  RunOptions& options = words.options;
  options.output = words.files.back();
  options.inputs.assign(words.files.begin(), words.files.end() - 1);
  if (!words.config.empty()) options.model_options.config = text_of_file(words.config);
  if (words.raw) options.out.container = program::Container::raw;
  if (!options.picture.empty() && options.inputs.size() > 1) throw UsageError("run: --picture: expected one input");
  run(options, [](const std::string& sentence) { std::fprintf(stderr, "polyphase: %s\n", sentence.c_str()); });
  return 0;
}

}  // namespace

void add_model_options(program::Arguments& command, ModelOptions& options, std::string& config) {
  command.add_option("--config", config,
                     "the network's configuration, JSON (default: in the model, or config.json next to it)");
  command.add_option("--network", options.network,
                     "its name in `polyphase networks` (default: recognised by the tensors' names)");
}

std::string read_config(const std::string& path) { return path.empty() ? "" : text_of_file(path); }

void add_run(program::Arguments& app, Action& action) {
  const auto words = std::make_shared<Words>();
  RunOptions& options = words->options;
  program::Arguments command =
      app.add_subcommand("run",
                         "Makes sound with a published network: MODEL is its file (safetensors, .pth, .onnx), "
                         "IN a mel, a latent or codes (.npy, safetensors, .pt)\n"
                         "or a WAV file, OUT a WAV file, - for standard output, .npy for samples, or a folder "
                         "for several inputs. From a WAV file, OUT .npy\n"
                         "gets the mel or the codes; OUT .safetensors also the volume of EnCodec's segments.");
  command.add_option("model", options.model, "the network's file").required();
  command.add_option("files", words->files, "inputs, and last the output").required();
  add_model_options(command, options.model_options, words->config);
  program::add_device(command, options.device);
  program::add_parsed(command, "--precision", options.precision, "fp32 (default), tf32, ieee, f16, bf16 or f64",
                      [&options](const std::string& text) {
                        parse_numbers(text, options);
                        return options.precision;
                      });
  command.add_option("--codebooks", options.codebooks, "only the first so many codes of each frame").above_zero();
  const program::Option stream =
      command.add_option("--stream", options.stream, "push this many frames at a time and write each result immediately")
          .above_zero();
  command.add_option("--chunk", options.chunk, "decode so many frames at a time; the result is the same")
      .above_zero()
      .excludes(stream);
  program::add_parsed(command, "--memory", options.memory,
                      "decode as much at a time as tensors fit in, as 800MB or 16GiB; the result is the same",
                      [](const std::string& text) { return parse_bytes(text); });
  program::add_parsed(command, "--format", options.out.format, "pcm16 (default), pcm24 or float32", parse_format);
  command.add_flag("--raw", words->raw, "samples without a WAV header, little endian, to be played while they are made");
  command.add_option("--picture", options.picture, "a PNG file for the result's spectrogram");
  program::add_threads(command);
  command.callback([words, &action] { action = [words] { return run_words(*words); }; });
}

}  // namespace polyphase::tool
