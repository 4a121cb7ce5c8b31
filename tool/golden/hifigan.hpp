#pragma once
// The generator of HiFi-GAN (Kong et al., arXiv 2010.05646), with the reference implementation's names.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layers/containers/module_list.hpp"
#include "layers/conv1d.hpp"
#include "layers/conv_transpose1d.hpp"

namespace polyphase::golden {

/// The part of the reference implementation's JSON configuration that shapes the generator.
struct HifiganConfig {
  bool two_convolutions = true;  ///< resblock "1"; else "2"
  std::vector<std::int64_t> upsample_rates;
  std::vector<std::int64_t> upsample_kernel_sizes;
  std::int64_t upsample_initial_channel = 0;
  std::vector<std::int64_t> resblock_kernel_sizes;
  std::vector<std::vector<std::int64_t>> resblock_dilation_sizes;
  std::int64_t num_mels = 80;
};

/// Reads the JSON. Throws FormatError naming the entry that is missing or does not fit.
[[nodiscard]] HifiganConfig parse_hifigan_config(const std::string& json);

/// Convolutions with a residual around each of them (resblock 2) or around each pair (resblock 1).
class HifiganResblock : public Module {
 public:
  HifiganResblock(std::int64_t channels, std::int64_t kernel_size, const std::vector<std::int64_t>& dilations,
                  bool two_convolutions);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& x) override;

 private:
  ModuleList first_;
  ModuleList second_;  // empty for resblock 2
};

/// mel (N, num_mels, frames) -> audio (N, 1, frames * product of upsample_rates) in [-1, 1].
class HifiganGenerator : public Module {
 public:
  explicit HifiganGenerator(const HifiganConfig& config);
  void visit(Visitor& visitor) override;
  [[nodiscard]] Tensor forward(const Tensor& mel) override;

 private:
  Conv1d before_;
  ModuleList ups_;
  ModuleList blocks_;              // resblock_kernel_sizes.size() of them after each of ups_
  std::unique_ptr<Conv1d> after_;  // its width is known only after the stages
};

}  // namespace polyphase::golden
