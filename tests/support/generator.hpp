#pragma once
// A small generator of HiFi-GAN's and BigVGAN's form.

#include "networks/generator_config.hpp"

namespace polyphase::testing {

/// Two stages of two blocks; a frame of 6 mels is 8 samples.
inline GeneratorConfig small_generator(bool two_convolutions) {
  return {.two_convolutions = two_convolutions,
          .upsample_rates = {4, 2},
          .upsample_kernel_sizes = {8, 4},
          .upsample_initial_channel = 8,
          .resblock_kernel_sizes = {3, 5},
          .resblock_dilation_sizes = {{1, 3}, {1}},
          .num_mels = 6};
}

}  // namespace polyphase::testing
