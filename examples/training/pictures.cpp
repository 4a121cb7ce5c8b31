#include "training/pictures.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "autograd/no_grad.hpp"
#include "io/atomic_file.hpp"
#include "ops/spectral.hpp"
#include "tensor/error.hpp"
#include "tensor/tensor.hpp"
#include "training/shared.hpp"

namespace training {
namespace {

namespace fs = std::filesystem;

constexpr int kFramesPerSecond = 125;
constexpr double kWindowSeconds = 0.032;  // long enough to show a voice's harmonics
constexpr double kDecibelRange = 90;      // below the loudest point of all panels, the rest is black

constexpr int kNoGnuplot = 127;  // exit code of a shell, and ours, for a program that is not there

// gnuplot's quotes: a single quote is doubled.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

// (bins, frames) in dB as text; the largest value is returned.
double write_matrix(const std::string& path, const SpectrogramPanel& panel) {
  const pp::NoGradGuard no_grad;
  const std::int64_t hop = panel.rate / kFramesPerSecond;
  const std::int64_t window = static_cast<std::int64_t>(kWindowSeconds * panel.rate) / 2 * 2;
  const pp::Tensor power =
      pp::power_spectrogram(pp::Tensor::from_vector(panel.signal), {.n_fft = window, .hop_length = hop, .win_length = window});
  const std::int64_t frames = power.size(0);
  const std::int64_t bins = power.size(1);
  const std::vector<float> values = power.to_vector<float>();
  // Equal tones look equal at every rate: a tone's power grows with the square of the window's length.
  const double scale = 4.0 / (static_cast<double>(window) * static_cast<double>(window));
  double loudest = -1000;
  std::string text;
  for (std::int64_t bin = 0; bin < bins; ++bin) {
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      const double decibels = 10 * std::log10(scale * values[static_cast<std::size_t>(frame * bins + bin)] + 1e-14);
      loudest = std::max(loudest, decibels);
      text += fixed(decibels, 1) + (frame + 1 < frames ? " " : "\n");
    }
  }
  write_text(path, text);
  return loudest;
}

}  // namespace

void write_text(const std::string& path, const std::string& text) {
  pp::AtomicFile file("eval", path);
  file.write(text.data(), text.size());
  file.commit();
}

std::string terminal(int width, int height, const std::string& picture) {
  return "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) set terminal pngcairo size " + std::to_string(width) + "," +
         std::to_string(height) + " font 'Sans,11'; else set terminal png size " + std::to_string(width) + "," +
         std::to_string(height) + "\nset output '" + picture + "'\n";
}

bool run_gnuplot(const std::string& folder, const std::string& script, const std::string& picture) {
  const pid_t child = fork();
  pp::require<pp::Error>(child >= 0, "eval: gnuplot cannot be started");
  if (child == 0) {
    if (chdir(folder.c_str()) != 0 || freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    execlp("gnuplot", "gnuplot", script.c_str(), static_cast<char*>(nullptr));
    _exit(kNoGnuplot);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kNoGnuplot) return false;
  pp::require<pp::Error>(code == 0, "eval: gnuplot could not draw ", folder, "/", script, " (exit code ", code, ")");
  const fs::path part = fs::path(folder) / (picture + ".part");
  fs::rename(part, fs::path(folder) / picture);
  return true;
}

void write_spectrograms(const std::string& folder, std::span<const SpectrogramPanel> panels) {
  double loudest = -1000;
  int highest = 0;
  double seconds = 0;
  for (const SpectrogramPanel& panel : panels) {
    loudest = std::max(loudest, write_matrix(folder + "/" + panel.name + ".matrix", panel));
    highest = std::max(highest, panel.rate);
    seconds = std::max(seconds, static_cast<double>(panel.signal.size()) / panel.rate);
  }
  const std::size_t rows = (panels.size() + 1) / 2;
  std::string script = terminal(1500, static_cast<int>(400 * rows), std::string(kSpectrogramPicture) + ".part");
  script += "set multiplot layout " + std::to_string(rows) +
            ",2\n"
            "set palette defined (0 '#000004', 1 '#1d1147', 2 '#51127c', 3 '#832681', 4 '#b73779', 5 '#e75263', 6 '#fc8961', "
            "7 '#fec488', 8 '#fcfdbf')\n"
            "set cbrange [" +
            fixed(loudest - kDecibelRange, 0) + ":" + fixed(loudest, 0) +
            "]\nset cblabel 'dB'\n"
            "set xrange [0:" +
            fixed(seconds, 3) + "]\nset yrange [0:" + fixed(highest / 2000.0, 3) +
            "]\n"
            "set xlabel 'time, s'\nset ylabel 'frequency, kHz'\nset tics out nomirror\n"
            "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor '#000004' fillstyle solid noborder\n";
  for (const SpectrogramPanel& panel : panels) {
    const int hop = panel.rate / kFramesPerSecond;
    const int window = static_cast<int>(kWindowSeconds * panel.rate) / 2 * 2;
    script += "set title " + quoted(panel.title) + " noenhanced\nplot " + quoted(panel.name + ".matrix") +
              " matrix using ($1*" + fixed(static_cast<double>(hop) / panel.rate, 6) + "):($2*" +
              fixed(panel.rate / 1000.0 / window, 6) + "):3 with image notitle\n";
  }
  write_text(folder + "/" + kSpectrogramScript, script + "unset multiplot\n");
}

void copy_logs(const RunFolder& run, const std::string& folder) {
  for (const std::string& from : {run.log(), run.heldout_log()}) {
    std::error_code error;
    const fs::path to = fs::path(folder) / fs::path(from).filename();
    if (fs::equivalent(from, to, error)) continue;  // the run's own folder
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
    pp::require<pp::Error>(!error, from, ": cannot be copied to ", folder, ": ", error.message());
  }
}

std::int64_t line_count(const std::string& path) {
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
}

}  // namespace training
