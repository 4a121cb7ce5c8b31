#include "training/clip.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "tensor/error.hpp"
#include "training/shared.hpp"

namespace training {
namespace {

using polyphase::concat;
using polyphase::Error;
using polyphase::require;

// Copies `source`, whose first sample is at position `first`, into the window [start, start + count); the rest is silence.
std::vector<float> window_of(const std::vector<float>& source, std::int64_t first, std::int64_t start, std::int64_t count) {
  std::vector<float> window(static_cast<std::size_t>(count), 0.0F);
  const std::int64_t begin = std::max(start, first);
  const std::int64_t end = std::min(start + count, first + static_cast<std::int64_t>(source.size()));
  if (begin < end)
    std::copy(source.begin() + (begin - first), source.begin() + (end - first), window.begin() + (begin - start));
  return window;
}

std::string name_of(const std::string& path, const AudioInfo& info, int channel) {
  const std::string stem = std::filesystem::path(path).stem().string();
  return info.channels == 1 ? stem : concat(stem, ":", channel);
}

bool has_sound(const Clip& clip) {
  const std::vector<float> samples = clip.high(0, clip.length());
  return std::any_of(samples.begin(), samples.end(), [](float sample) { return sample != 0; });
}

}  // namespace

Clip::Clip(std::string path, const AudioInfo& info, int channel, int rate, int factor)
    : path_(std::move(path)),
      name_(name_of(path_, info, channel)),
      info_(info),
      channel_(static_cast<std::size_t>(channel)),
      rate_(rate),
      factor_(factor) {
  const std::int64_t length =
      info.rate == rate ? info.frames : static_cast<std::int64_t>(static_cast<double>(info.frames) * rate / info.rate);
  length_ = length / factor * factor;
}

std::int64_t Clip::bytes() const {
  return static_cast<std::int64_t>(sizeof(float)) * (length_ + (factor_ == 1 ? 0 : length_ / factor_));
}

void Clip::load(const Audio& audio) {
  std::vector<float> whole = resample(audio.channels[channel_], rate_, info_.rate);
  whole.resize(static_cast<std::size_t>(length_));
  if (factor_ > 1) low_ = resample(whole, 1, factor_);
  high_ = std::move(whole);
}

std::vector<float> Clip::high(std::int64_t start, std::int64_t count) const {
  if (!high_.empty()) return window_of(high_, 0, start, count);
  const std::int64_t begin = std::clamp<std::int64_t>(start, 0, length_);
  const std::int64_t end = std::clamp<std::int64_t>(start + count, begin, length_);
  return window_of(begin < end ? read(begin, end - begin) : std::vector<float>{}, begin, start, count);
}

// Reads the part of the file for [start, start + count), plus what the rate converter needs on either side.
std::vector<float> Clip::read(std::int64_t start, std::int64_t count) const {
  Resampler resampler(rate_, info_.rate);
  const bool same_rate = resampler.up() == 1 && resampler.down() == 1;
  const std::int64_t reach = same_rate ? 0 : resampler.reach();
  // Output multiples of `up` are exactly at input samples. If the filter starts there, it has the same phases as in the whole
  // file.
  const std::int64_t blocks = start / resampler.up() - (reach + resampler.down() - 1) / resampler.down();
  const std::int64_t aligned = blocks * resampler.up();
  const std::int64_t begin = blocks * resampler.down();
  const std::int64_t end = ((start + count) * resampler.down() + resampler.up() - 1) / resampler.up() + reach;
  const std::int64_t first = std::max<std::int64_t>(begin, 0);
  const auto reader = open_audio(path_);
  const Audio audio = read_audio(*reader, path_, first, std::min(end, info_.frames) - first);
  const std::vector<float> input = window_of(audio.channels[channel_], first, begin, end - begin);
  if (same_rate) return window_of(input, begin, start, count);
  return window_of(resample(input, rate_, info_.rate), aligned, start, count);
}

std::vector<float> Clip::low(std::int64_t start, std::int64_t count) const {
  if (factor_ == 1) return high(start, count);
  if (!low_.empty()) return window_of(low_, 0, start, count);
  const std::int64_t margin = kAntiAlias.zero_crossings + 1;
  const std::vector<float> source = high((start - margin) * factor_, (count + 2 * margin) * factor_);
  std::vector<float> window = window_of(resample(source, 1, factor_), start - margin, start, count);
  // Outside of the clip there is silence, without the filter's ringing.
  for (std::int64_t i = 0; i < count; ++i) {
    if (start + i < 0 || start + i >= length_ / factor_) window[static_cast<std::size_t>(i)] = 0;
  }
  return window;
}

double ClipSet::seconds() const {
  double samples = 0;
  for (const Clip& clip : clips) samples += static_cast<double>(clip.length());
  return samples / rate;
}

int most_common_rate(const std::vector<std::string>& paths) {
  std::map<int, int> counts;
  for (const auto& path : paths) {
    try {
      ++counts[open_audio(path)->info().rate];
    } catch (const Error&) {  // open_clips will report the error
    }
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? 0 : most->first;
}

ClipSet open_clips(const std::vector<std::string>& paths, const ClipOptions& options,
                   const std::function<void(const std::string&)>& warn) {
  ClipSet set;
  set.rate = options.rate != 0 ? options.rate : most_common_rate(paths);
  std::int64_t cached = 0;
  for (const auto& path : paths) {
    try {
      const auto reader = open_audio(path);
      const AudioInfo& info = reader->info();
      require<Error>(info.frames > 0, path, ": there is no sound in it (0 samples)");
      require<Error>(options.takes_lower_rates || info.rate >= set.rate, path, ": expected at least ", set.rate, " Hz, got ",
                     info.rate, " Hz");
      require_convertible(path, info.rate, set.rate);
      std::vector<Clip> clips;
      for (int channel = 0; channel < info.channels; ++channel)
        clips.emplace_back(path, info, channel, set.rate, options.factor);
      require<Error>(clips[0].length() >= options.shortest, path, ": expected at least ", options.shortest, " samples at ",
                     set.rate, " Hz, got ", clips[0].length());
      const std::int64_t bytes = clips[0].bytes() * info.channels;
      if (cached + bytes <= options.cache_bytes) {
        const Audio audio = read_audio(*reader, path);
        for (Clip& clip : clips) clip.load(audio);
        cached += bytes;
      }
      for (Clip& clip : clips) {
        if (options.silence || has_sound(clip)) {
          set.clips.push_back(std::move(clip));
        } else {
          warn(concat("left out: ", path, ": expected sound, got silence throughout",
                      info.channels == 1 ? "" : " in " + clip.name()));
        }
      }
    } catch (const Error& error) {
      warn(concat("left out: ", error.what()));
    }
  }
  require<Error>(!set.clips.empty(), "none of the ", paths.size(), " sound files can be used");
  return set;
}

}  // namespace training
