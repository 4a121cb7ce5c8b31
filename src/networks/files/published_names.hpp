#pragma once
// Which network a checkpoint is of, and its tensors under the original code's names. Internal.

#include <string>
#include <string_view>

#include "layers/module.hpp"

namespace polyphase {

/// The network that tensors of these names belong to, as network_entries() call it; empty where none is known by them. The
/// names may be the original's, with anything in front, or those of transformers or diffusers.
[[nodiscard]] std::string network_of(const NamedTensors& tensors);

/// Names that transformers or diffusers gave to the tensors of `network`, changed to the original's: DAC, EnCodec, Mimi,
/// Oobleck, SpeechT5's HiFi-GAN. Where the names are the original's, nothing changes.
[[nodiscard]] NamedTensors with_original_names(std::string_view network, const NamedTensors& tensors);

/// The tensors that belong to `own`, a network's state: those with the prefix that most of its names have
/// ("generator.", "state_dict.", "dec.", nothing), without it. Weight norm may have any spelling. What has another prefix is
/// another part of the checkpoint.
[[nodiscard]] NamedTensors without_prefix(const NamedTensors& tensors, const NamedTensors& own);

/// Both parts of each weight norm, in either spelling, made into one weight in f64; everything else as it is, in the order of
/// `tensors`.
[[nodiscard]] NamedTensors with_folded_weights(const NamedTensors& tensors);

}  // namespace polyphase
