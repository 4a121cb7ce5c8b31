#pragma once
// Sound files, resampling and text functions of program/, in this program's namespace.

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
