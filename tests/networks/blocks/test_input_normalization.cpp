#include "networks/blocks/input_normalization.hpp"

#include <doctest/doctest.h>

#include "support/helpers.hpp"
#include "support/stream.hpp"

using namespace polyphase;
using namespace polyphase::testing;

TEST_CASE("each row less its mean, by its scale, whole and in a stream") {
  InputNormalization module(3);
  module.load_state_dict({{"mean", Tensor::from_vector<float>({1, 2, 4})}, {"scale", Tensor::from_vector<float>({2, 4, 8})}});
  const Tensor y = module(Tensor::full({1, 3, 2}, 6));
  CHECK(y.to_vector<float>() == std::vector<float>{2.5, 2.5, 1, 1, 0.25, 0.25});
  check_stream(module, {2, 3, 17});
  CHECK(error_of<ShapeError>([&] {
          return module(Tensor::ones({1, 4, 2}));
        }).find("(N, 3, frames), got (1, 4, 2)") != std::string::npos);
}
