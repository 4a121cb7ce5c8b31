#include "report.hpp"

#include <cstdio>

#include "training/pictures.hpp"

namespace vocoder {
namespace {

constexpr double kPictureSeconds = 5;

// A curve of log.csv: the points pale, the smoothed line over them.
std::string curve(const char* title, int column) {
  const std::string of = "'log.csv' using 1:" + std::to_string(column);
  return std::string("set title '") + title + "'\nplot " + of + " with lines linecolor '#c6d8ee' notitle, " + of +
         " smooth bezier linewidth 2 linecolor '#1f5fa8' notitle\n";
}

}  // namespace

void write_clip(const std::string& folder, const Vocoder& vocoder, const Clip& clip, int rate) {
  const std::vector<float> original = clip.high(0, clip.length());
  std::vector<SpectrogramPanel> panels{{"original", clip.name() + ", original", original, rate},
                                       {"vocoder", clip.name() + ", vocoder", resynthesize(vocoder, original), rate}};
  for (SpectrogramPanel& panel : panels) {
    write_wav(folder + "/" + clip.name() + "." + panel.name + ".wav", {panel.rate, {panel.signal}});
    const auto most = static_cast<std::size_t>(kPictureSeconds * panel.rate);
    if (panel.signal.size() > most) panel.signal.resize(most);
  }
  write_spectrograms(folder, panels);
}

void write_loss_curve(const std::string& folder, const RunFolder& run) {
  copy_logs(run, folder);
  const bool checked = line_count(run.heldout_log()) > 1;  // a run that was stopped early has no check yet
  std::string script = terminal(1500, 900, std::string(kLossPicture) + ".part") +
                       "set datafile separator ','\nset grid linecolor '#dddddd'\nset border 3\nset tics nomirror\n"
                       "set xlabel 'step'\nset xrange [0:*]\nset multiplot layout 2,2\n";
  script += curve("generator: mel loss", 6) + curve("generator: feature matching", 5) + curve("discriminators", 3);
  if (checked)
    script +=
        "set title 'held out: mel distance'\nplot 'heldout.csv' using 1:2 with linespoints pointtype 7 linewidth 2 "
        "linecolor '#1f5fa8' notitle\n";
  write_text(folder + "/" + kLossScript, script + "unset multiplot\n");
}

void draw(const std::string& folder, bool has_curve) {
  bool drew = run_gnuplot(folder, kSpectrogramScript, kSpectrogramPicture);
  if (drew && has_curve) drew = run_gnuplot(folder, kLossScript, kLossPicture);
  if (drew)
    std::printf("pictures %s/%s%s\n", folder.c_str(), kSpectrogramPicture, has_curve ? ", loss.png" : "");
  else
    std::printf("pictures none: gnuplot is not installed; install it and run gnuplot on the .gp files in %s\n", folder.c_str());
}

}  // namespace vocoder
