#pragma once
// Audio of any length in a bounded amount of memory.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "../networks/network.hpp"

namespace polyphase {

struct DecodeOptions {
  std::int64_t frames_at_a_time = 0;  ///< 0: as many as `memory` allows, all where that is 0 too
  std::size_t memory = 0;             ///< bytes that all tensors of the network's device may take together; 0: no limit
};

/// Receives audio (N, audio_channels, m), piece by piece.
using AudioSink = std::function<void(const Tensor& audio)>;

/// Decodes `input` (N, rows, frames), which may lie on another device than the network, and hands the audio to `sink` in order.
/// Together the pieces are network(input): on the CPU bit for bit, as a Stream computes them. `sink` keeps no piece where the
/// memory is limited. Throws what the network throws; NotImplemented where it cannot be streamed and the input is to be cut;
/// Error where one frame at a time needs more than `memory`.
void decode(Network& network, const Tensor& input, const DecodeOptions& options, const AudioSink& sink);

/// How many frames of an input (N, rows, frames) a Stream may be given at a time for tensors to stay within `memory` bytes, by
/// trials with zeros; `frames` where all fit. Throws as decode() does.
[[nodiscard]] std::int64_t frames_within(Network& network, const Shape& input, std::size_t memory);

}  // namespace polyphase
