#include "ops/conv/input.hpp"

#include "tensor/error.hpp"

namespace polyphase::ops {

void check_input(const char* name, const ConvInputOptions& input) {
  const bool is_snake = input.activation == Activation::snake;
  require<Error>(input.activation != Activation::tanh, name,
                 ": expected none, relu, leaky_relu or snake as the input's activation, got tanh");
  require<Error>(!is_snake || input.alpha.defined(), name,
                 ": expected alpha (C_in) with snake as the input's activation, got none");
  require<Error>(is_snake || (!input.alpha.defined() && !input.beta.defined()), name,
                 ": expected alpha and beta with snake alone as the input's activation, got them with another one");
}

ConvPrologue prologue_of(const ConvInputOptions& input) {
  if (input.activation != Activation::snake)
    return {input.activation, input.activation == Activation::leaky_relu ? input.slope : 0};
  const Tensor alpha = input.alpha.detach().contiguous();
  return {input.activation, 0, alpha, input.beta.defined() ? input.beta.detach().contiguous() : alpha};
}

bool is_of_channels(const Tensor& values, std::int64_t channels, const Tensor& x) {
  return values.shape() == Shape{channels} && values.dtype() == x.dtype() && values.device() == x.device();
}

bool fits(const ConvInputOptions& input, const Tensor& x) {
  if (input.activation != Activation::snake) return true;
  return x.rank() >= 2 && is_of_channels(input.alpha, x.size(-2), x) &&
         (!input.beta.defined() || is_of_channels(input.beta, x.size(-2), x));
}

}  // namespace polyphase::ops
