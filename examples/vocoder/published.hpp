#pragma once
// Checkpoints of the original codes.

#include <string>

#include "networks/gan/training.hpp"
#include "shared.hpp"

namespace vocoder {

/// Copies a generator's weights in, from any file of load_weights(): "g_02500000", "bigvgan_generator.pt", a run's
/// best.safetensors. The generator is under weight norm; g and v of a file that has them keep their bits. Throws FormatError
/// naming the file, and every missing, unexpected and misshapen key.
void load_generator(pp::Network& generator, const std::string& path);

/// What a do_* file says of the run that wrote it.
struct PublishedRun {
  std::int64_t steps = 0;
  std::int64_t epochs = 0;
};
/// Copies the discriminators' weights in, from the original's "do_02500000", "bigvgan_discriminator_optimizer.pt" or a run's
/// best_discriminators.safetensors, and the states of both optimizers where the file has them. Throws as load_generator().
PublishedRun load_discriminators(pp::GanTraining& training, const std::string& path);

/// The tensors of all discriminators under the names of such a file: "mpd.discriminators.0.convs.0.bias".
[[nodiscard]] pp::NamedTensors discriminator_state(pp::GanTraining& training);

}  // namespace vocoder
