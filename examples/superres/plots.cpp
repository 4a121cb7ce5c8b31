#include "plots.hpp"

namespace superres {
namespace {

// Columns of heldout.csv: the network's curve over windowed sinc's line.
std::string heldout_plot(int network, int sinc) {
  return "plot 'heldout.csv' using 1:" + std::to_string(network) +
         " with linespoints pointtype 7 linewidth 2 linecolor '#1f5fa8' title 'network', '' using 1:" + std::to_string(sinc) +
         " with lines dashtype 2 linewidth 2 linecolor '#a83232' title 'windowed sinc'\n";
}

}  // namespace

void write_loss_curve(const std::string& folder, const RunFolder& run) {
  copy_logs(run, folder);
  const bool checked = line_count(run.heldout_log()) > 1;  // a run that was stopped early has no check yet
  std::string script = terminal(checked ? 1500 : 750, 450, std::string(kLossPicture) + ".part");
  script +=
      "set datafile separator ','\nset grid linecolor '#dddddd'\nset border 3\nset tics nomirror\nset xlabel 'step'\n"
      "set xrange [0:*]\nset multiplot layout 1," +
      std::string(checked ? "3" : "1") +
      "\nset title 'training loss'\n"
      "plot 'log.csv' using 1:3 with lines linecolor '#c6d8ee' notitle, "
      "'' using 1:3 smooth bezier linewidth 2 linecolor '#1f5fa8' notitle\n";
  if (checked) {
    script += "set title 'held out: log-spectral distance'\nset yrange [0:*]\nset key tmargin center horizontal\n" +
              heldout_plot(4, 7) + "set title 'held out: SNR, dB'\nset yrange [*:*]\n" + heldout_plot(2, 5);
  }
  write_text(folder + "/" + kLossScript, script + "unset multiplot\n");
}

}  // namespace superres
