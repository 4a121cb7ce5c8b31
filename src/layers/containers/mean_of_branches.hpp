#pragma once
// Parallel modules.

#include <utility>

#include "../../layers/containers/module_sequence.hpp"

namespace polyphase {

/// The mean of modules that all get the same input, as HiFi-GAN and BigVGAN combine their residual blocks: (r_0(x) + r_1(x) +
/// ...)/n, summed in order and then divided, which gives the bits of their code (jik876/hifi-gan@4769534:models.py).
///
///     pp::MeanOfBranches(pp::named("resblocks.0", block(3)), pp::named("resblocks.1", block(7)))
///
/// Children are named by position ("0", "1", ...) or by named(). A copy shares the children.
class MeanOfBranches : public layers::ModuleSequence<MeanOfBranches> {
 public:
  static constexpr const char* kName = "MeanOfBranches";

  MeanOfBranches() = default;
  /// Takes ownership of the modules.
  template <layers::Child... M>
  requires(sizeof...(M) > 0 && !layers::kIsOneOf<MeanOfBranches, M...>) explicit MeanOfBranches(M... modules) {
    (push_back(std::move(modules)), ...);
  }

  /// x of any shape that the branches take. In cuda::capture() the branches of an x of at most 16 MiB are recorded as
  /// concurrent. Throws ShapeError if there are no branches or their results differ in shape, and the errors of the branches.
  [[nodiscard]] Tensor forward(const Tensor& x) override;
  /// Branches of different latency wait for each other. Throws NotImplemented if branches differ in rate.
  [[nodiscard]] std::unique_ptr<ModuleStream> make_stream() override;
};

}  // namespace polyphase
