#include "evaluation.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "shared.hpp"
#include "upsampler.hpp"

namespace superres {

std::vector<ClipScores> evaluate(UpsamplingNetwork& network, const ClipSet& clips) {
  std::vector<ClipScores> all;
  const int factor = network.options().factor;
  for (const Clip& clip : clips.clips) {
    const std::vector<float> high = clip.high(0, clip.length());
    const std::vector<float> low = clip.low(0, clip.length() / factor);
    all.push_back({.name = clip.name(),
                   .seconds = static_cast<double>(clip.length()) / clips.rate,
                   .linear = score(high, interpolate_linear(low, factor)),
                   .sinc = score(high, interpolate_sinc(low, factor)),
                   .network = score(high, upsample(network, low))});
  }
  return all;
}

ClipScores mean_of(const std::vector<ClipScores>& scores) {
  ClipScores mean;
  mean.name = "mean";
  std::array<std::vector<Scores>, 3> columns;
  for (const ClipScores& one : scores) {
    mean.seconds += one.seconds;
    columns[0].push_back(one.linear);
    columns[1].push_back(one.sinc);
    columns[2].push_back(one.network);
  }
  mean.linear = mean_of(columns[0]);
  mean.sinc = mean_of(columns[1]);
  mean.network = mean_of(columns[2]);
  return mean;
}

double lsd_gain(const ClipScores& scores) { return 1 - scores.network.lsd / scores.sinc.lsd; }

double selection_score(const ClipScores& scores) {
  // In this order NaN stays NaN, and is never the best.
  return 1 - lsd_gain(scores) + std::max(scores.sinc.snr - scores.network.snr - kAllowedLoss, 0.0);
}

std::string verdict(const ClipScores& mean) {
  const double gain = lsd_gain(mean);
  const double snr = mean.network.snr - mean.sinc.snr;
  return "log-spectral distance " + fixed(mean.network.lsd, 2) + ", " + fixed(std::abs(gain) * 100, 0) + " % " +
         (gain >= 0 ? "below" : "above") + " windowed sinc's " + fixed(mean.sinc.lsd, 2) + "; SNR " +
         fixed(mean.network.snr, 1) + " dB, " + fixed(std::abs(snr), 2) + " dB " + (snr >= 0 ? "above" : "below") + " its " +
         fixed(mean.sinc.snr, 1) + " dB";
}

std::string table_of(const std::vector<ClipScores>& scores) {
  std::size_t width = 4;
  for (const ClipScores& one : scores) width = std::max(width, one.name.size());
  const auto cells = [](double linear, double sinc, double network, int digits) {
    return "  |" + pad_left(fixed(linear, digits), 8) + pad_left(fixed(sinc, digits), 8) + pad_left(fixed(network, digits), 9);
  };
  const auto row = [&](const ClipScores& one) {
    return pad_right(one.name, width) + pad_left(fixed(one.seconds, 1), 8) +
           cells(one.linear.snr, one.sinc.snr, one.network.snr, 2) +
           cells(one.linear.si_sdr, one.sinc.si_sdr, one.network.si_sdr, 2) +
           cells(one.linear.lsd, one.sinc.lsd, one.network.lsd, 3) + "\n";
  };
  const std::string names = "  |  linear    sinc  network";
  std::string table = pad_right("", width + 8) +
                      "  |  SNR, dB (more is better) |  SI-SDR, dB (more)        |  log-spectral distance (less)\n" +
                      pad_right("clip", width) + pad_left("seconds", 8) + names + names + names + "\n";
  const std::string rule(width + 8 + 3 * names.size(), '-');
  table += rule + "\n";
  for (const ClipScores& one : scores) table += row(one);
  if (scores.size() > 1) table += rule + "\n" + row(mean_of(scores));
  return table;
}

}  // namespace superres
