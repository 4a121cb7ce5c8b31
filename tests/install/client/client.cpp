// A new user's first program: one transposed convolution through the umbrella header.
#include <iostream>
#include <polyphase/polyphase.hpp>

int main() {
  namespace pp = polyphase;
  const pp::Tensor x = pp::Tensor::ones({1, 2, 3});  // (N, C_in, L_in)
  const pp::Tensor w = pp::Tensor::ones({2, 1, 4});  // (C_in, C_out, K)
  const pp::Tensor y = pp::conv_transpose1d(x, w, pp::Tensor(), {.stride = 2, .padding = 1});
  std::cout << y << '\n';
  // Every inner output is the sum over two taps of two channels.
  if (y.shape() != pp::Shape{1, 1, 6} || y.select(2, 2).item<float>() != 4.0f) return 1;
  // A layer with a fused activation, with types that only installed headers define.
  pp::Conv1d conv({.in_channels = 1, .out_channels = 1, .kernel_size = 1});
  pp::Snake snake(1);
  return pp::allclose(conv.forward_activated(y, snake.output_options()), snake(conv(y))) ? 0 : 1;
}
