#pragma once
// Sound files, resampling and words that all programs share (program/), under this program's own names.

#include "program/audio/audio_file.hpp"
#include "program/audio/pipe_input.hpp"
#include "program/audio/resample.hpp"
#include "program/audio/stream_progress.hpp"
#include "program/audio/wav_writer.hpp"
#include "program/interrupt.hpp"
#include "program/text.hpp"

namespace superres {
using namespace polyphase::program;
}
