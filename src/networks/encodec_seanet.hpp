#pragma once
// EnCodec's convolutional networks (facebookresearch/encodec@0e2d0ae:encodec/modules/seanet.py). Internal.

#include "layers/containers/sequential.hpp"
#include "networks/encodec.hpp"

namespace polyphase::networks {

/// Throws FormatError "encodec: config: ..." where the configuration's numbers do not go together.
void check_encodec(const EncodecConfig& config);
/// SEANetEncoder.model: (N, channels, L) -> (N, dimension, ceil(L/hop_length)).
[[nodiscard]] Sequential seanet_encoder(const EncodecConfig& config);
/// SEANetDecoder.model: (N, dimension, L) -> (N, channels, L*hop_length).
[[nodiscard]] Sequential seanet_decoder(const EncodecConfig& config);
/// Whether a checkpoint's key is a statistic that the original trains its codebooks by, which neither side needs.
[[nodiscard]] bool is_unused_by_quantizer(std::string_view key);

}  // namespace polyphase::networks
