#include "training/finite.hpp"

#include <utility>

#include "autograd/no_grad.hpp"
#include "ops/elementwise.hpp"
#include "ops/reduce.hpp"
#include "training/shared.hpp"

namespace training {
namespace {

bool is_finite(const pp::Tensor& tensor) {
  const pp::NoGradGuard no_grad;
  return pp::sum(tensor.detach().to(pp::DType::f32) * 0.0).item<float>() == 0;
}

}  // namespace

pp::Checkpoint require_finite(pp::Checkpoint checkpoint, const std::string& advice) {
  const std::string name = not_finite(checkpoint);
  pp::require<Diverged>(name.empty(), "train: at step ", checkpoint.step, " ", name, " became infinite or NaN: try ", advice);
  return checkpoint;
}

std::string not_finite(const pp::Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.model) {
    if (!is_finite(tensor)) return name;
  }
  for (const auto& [owner, state] : checkpoint.states) {
    for (const auto& [name, tensor] : state.tensors) {
      if (!is_finite(tensor)) return pp::concat("state ", name, " of ", owner);
    }
  }
  return "";
}

pp::Checkpoint load_finite_checkpoint(const std::string& path) {
  pp::Checkpoint checkpoint = pp::load_checkpoint(path);
  const std::string name = not_finite(checkpoint);
  pp::require<pp::FormatError>(name.empty(), path, ": expected finite numbers in ", name, ", got NaN or infinity");
  return checkpoint;
}

}  // namespace training
