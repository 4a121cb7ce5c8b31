#pragma once
// Sound files, resampling and words that all programs share (program/), under the examples' own names.

#include "program/audio/audio_file.hpp"
#include "program/audio/pipe_input.hpp"
#include "program/audio/resample.hpp"
#include "program/audio/stream_progress.hpp"
#include "program/audio/wav_writer.hpp"
#include "program/interrupt.hpp"
#include "program/text.hpp"
#include "tensor/error.hpp"

namespace training {
namespace pp = polyphase;
using namespace polyphase::program;
}  // namespace training
